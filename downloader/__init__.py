"""A mass downloader. Each public name is imported on first use.

Importing this package has no effects: it imports neither gevent nor ssl nor requests. It imports nothing at
all, since ``python -m downloader`` runs it while the current directory is first on ``sys.path``.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from downloader._version import VERSION as __version__
    from downloader.api import download
    from downloader.config.config import Config
    from downloader.errors import (
        BootError,
        ConfigError,
        DestinationError,
        DownloaderError,
        InUse,
        JournalError,
        SourceError,
        UnsafeProcess,
    )
    from downloader.reporting.record import Report

__all__ = [
    "BootError",
    "Config",
    "ConfigError",
    "DestinationError",
    "DownloaderError",
    "InUse",
    "JournalError",
    "Report",
    "SourceError",
    "UnsafeProcess",
    "__version__",
    "download",
]

_ELSEWHERE = {
    "Config": ("config.config", "Config"),
    "Report": ("reporting.record", "Report"),
    "__version__": ("_version", "VERSION"),
    "download": ("api", "download"),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _ELSEWHERE.get(name, ("errors", name))
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), attribute)
    return value


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(__all__))
