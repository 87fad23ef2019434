"""Read headers, logins and proxies from the files and the environment that the command line names.

No message contains any of their values.
"""

from __future__ import annotations

import os
import shlex
import stat

from downloader.config.contradictions import check_proxy
from downloader.errors import ConfigError

__all__ = ["ask_password", "auth_from", "header", "netrc_path", "proxies"]


def header(line: str) -> tuple[str, str]:
    """Return name and value of the header field ``Name: value``. Raises ConfigError."""
    name, colon, value = line.partition(":")
    if not colon or not name.strip():
        raise ConfigError("-H: write -H 'Name: value'")
    return name.strip(), value.strip()


def netrc_path() -> str:
    """Return $NETRC or ~/.netrc. Raises ConfigError where others can read the file."""
    path = os.environ.get("NETRC") or os.path.expanduser("~/.netrc")
    return _private(path, "--netrc")


def auth_from(path: str) -> tuple[str, str]:
    """Return user and password from the first line of ``path``. Raises ConfigError."""
    try:
        # utf-8-sig: a byte order mark, which editors on Windows write, is not part of the user name.
        with open(_private(path, "--auth-file"), encoding="utf-8-sig", errors="surrogateescape") as file:
            user, colon, password = file.readline(4096).rstrip("\r\n").partition(":")
    except OSError as error:
        raise ConfigError(f"--auth-file: {path}: {error.strerror}") from None
    if not colon:
        raise ConfigError(f"--auth-file: {path} does not begin with a line user:password")
    if "\0" in user + password:
        raise ConfigError(f"--auth-file: {path} is not text in UTF-8 (it may be UTF-16); save it as UTF-8")
    return user, password


def ask_password(path: str) -> str:
    """Prompt for the password of the key in ``path``; return "" where there is no terminal."""
    try:
        if not (os.isatty(0) or os.isatty(2)):
            return ""
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return ""
    from getpass import getpass

    from downloader.core.naming import shown

    return getpass(f"Password of {shown(path)}: ")


def _private(path: str, option: str) -> str:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{option}: not a path") from None
    if stat.S_ISDIR(mode):
        raise ConfigError(f"{option}: {path} is a directory")
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{option}: {path} can be read by others; chmod 600 {shlex.quote(path)}")
    return path


def _proxy_url(text: str) -> str:
    """Return the URL of a proxy that is given as a URL, or as host and port."""
    return text if "://" in text else f"http://{text}"


def proxies(option: str | None) -> tuple[dict[str, str], str]:
    """Return the proxy of each scheme, and the hosts that need none, from the value of --proxy.

    Raises ConfigError for a variable that has none.
    """
    if option is None:
        return {}, ""
    if option != "env":
        return dict.fromkeys(("http", "https"), _proxy_url(option)), ""
    found = {}
    for scheme in ("http", "https", "all"):
        # Not HTTP_PROXY in capitals: a CGI server sets it from a request header field (CVE-2016-5385).
        names = [f"{scheme}_proxy"] + ([f"{scheme}_proxy".upper()] if scheme != "http" else [])
        if name := next((name for name in names if os.environ.get(name)), ""):
            found[scheme] = _proxy_url(os.environ[name])
            check_proxy(f"--proxy env: the variable {name}", found[scheme])
    return found, os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
