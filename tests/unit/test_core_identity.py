"""Which spellings are one source, and which are two."""

from __future__ import annotations

import hashlib

import pytest

from downloader.config.config import Config
from downloader.core.identity import Identity
from downloader.sources.registry import source_kind


def identify(config: Config) -> Identity:
    return source_kind(config).identity(config)


def server(source: str, list_path: str = "list", get_path: str = "get") -> Identity:
    paths = {"list_path": list_path, "get_path": get_path}
    return identify(Config(source=source, output="d", source_options=paths))


@pytest.mark.parametrize(
    "given",
    [
        ("http://h.example/p",),
        ("HTTP://H.Example:80/p//",),
        ("http://me:old@h.example/p",),
        ("http://me:new@h.example/p", "/list/", "//get"),
        ("http://h.example/", "p/list", "/p/get/"),
        ("http://h.example/p", "list?"),
        ("http://h.example/p", "list?token=a&"),
        ("http://h.example/p", "list?token=b"),
    ],
)
def test_spellings_of_one_server(given: tuple[str, ...]) -> None:
    assert server("http://h.example/p").owns(server(*given).digest)
    assert server(*given).owns(server("http://h.example/p").digest)


@pytest.mark.parametrize(
    "given",
    [
        ("https://h.example/p",),
        ("http://h2.example/p",),
        ("http://h.example:8080/p",),
        ("http://h.example/P",),
        ("http://h.example/",),
        ("http://h.example//p",),
        ("http://h.example/p", "list2"),
        ("http://h.example/p", "list", "get2"),
        ("http://h.example/p", "list?dir=a"),
        ("http://h.example/p", "list?key=a"),
        ("http://[::1]:80/p",),
    ],
)
def test_different_servers(given: tuple[str, ...]) -> None:
    assert not server("http://h.example/p").owns(server(*given).digest)


def test_query_and_ipv6_port_distinguish_servers() -> None:
    assert server("http://h", "list?key=a").digest != server("http://h", "list?key=b").digest
    assert server("http://[::1]:81").digest != server("http://[::1:81]").digest


def test_identity_written_by_an_earlier_version_is_accepted() -> None:
    def of(text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    assert server("http://Me:pw@H/p/", "/list").owns(of("server\0http://Me:pw@H/p\0/list\0get"))
    assert not server("http://Me:pw@H/p/", "/list").owns(of("server\0http://H/p\0/list\0get"))
    assert identify(Config(source="-", output="d")).owns(of("urls\0/some/where.txt"))
