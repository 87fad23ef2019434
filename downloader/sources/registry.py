"""The source of a run, by the kind that its Config names."""

from __future__ import annotations

import importlib

from downloader.config.config import Config
from downloader.core.identity import Identity, identify_list, identify_server
from downloader.sources.server_urls import base_url, list_url
from downloader.sources.source import Fetching, Source

__all__ = ["MODULES", "identify", "open_source"]

MODULES = {"server": "listing_server", "urls": "url_list"}


def open_source(config: Config, fetching: Fetching, name_key: bytes) -> Source:
    """The source that ``config`` names, not read yet. ``name_key``: see ``core.naming.url_name``."""
    module = importlib.import_module(f"downloader.sources.{MODULES[config.kind]}")
    source: Source = module.open_source(config, fetching, name_key)
    return source


def identify(config: Config) -> Identity:
    """What identifies the source that ``config`` names."""
    if config.kind != "server":
        return identify_list()
    return identify_server(
        config.source, config.list_path, config.get_path, list_url(config), base_url(config)
    )
