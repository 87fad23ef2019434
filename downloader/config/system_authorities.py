"""Read the CA certificates that the system trusts, for ``--cacert system``.

They are those of OpenSSL's default paths: a file and a directory, which are built into it and which
SSL_CERT_FILE and SSL_CERT_DIR replace. They are read once, like a file of ``--cacert``, and not looked up
in the directory at each verification, which would block all connections of a worker.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from downloader.config.small_files import read_small
from downloader.errors import BootError, ConfigError
from downloader.files.interpreter import interpreter

__all__ = ["SYSTEM", "Places", "certificates", "certificates_in", "read_system_authorities"]

SYSTEM = "system"
"""The value of ``--cacert`` that means them; a file of that name is ``./system``."""

_USUAL_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Gentoo, NixOS
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # the same, newer
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ssl/cert.pem",  # Alpine
)
_USUAL_DIRECTORIES = ("/etc/ssl/certs", "/etc/pki/tls/certs")
"""Where distributions have them: an OpenSSL or a Python that was built by hand looks elsewhere."""

_BLOCK = re.compile(rb"-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----\r?\n.*?-----END \1-----", re.DOTALL)
_HASHED = re.compile(r"[0-9a-f]{8}\.[0-9]+").fullmatch  # the names that OpenSSL looks for

# Another process, since the supervisor must not import ssl.
_ASK = """
import json, ssl
p = ssl.get_default_verify_paths()
print(json.dumps([p.openssl_cafile_env, p.openssl_cafile, p.openssl_capath_env, p.openssl_capath]))
"""


class Places(NamedTuple):
    """Where OpenSSL looks, and the variables that say so ("" for what is built in)."""

    file: str
    directories: tuple[str, ...]
    file_variable: str = ""
    directory_variable: str = ""

    @classmethod
    def of(cls, defaults: Iterable[str], environment: Mapping[str, str]) -> Places:
        """Return the places.

        ``defaults``: the name of the variable for the file, the file without it, and the same for the
        directories. A variable that is set and empty means: none.
        """
        file_variable, file, directory_variable, directory = defaults
        directories = environment.get(directory_variable, directory).split(os.pathsep)
        return cls(
            environment.get(file_variable, file),
            tuple(filter(None, directories)),
            file_variable if environment.get(file_variable) else "",
            directory_variable if environment.get(directory_variable) else "",
        )


def read_system_authorities(
    environment: Mapping[str, str] = os.environ, ask: Callable[[], list[str]] | None = None
) -> bytes:
    """Return the certificates as PEM. Raises ConfigError if there are none, or SSL_CERT_FILE is no file."""
    places = Places.of((ask or _ask_openssl)(), environment)
    texts = [_read_file(places.file, places.file_variable)] if places.file else []
    texts += _read_directories(places.directories)
    found = certificates(texts)
    given = " and ".join(filter(None, (places.file_variable, places.directory_variable)))
    if not found and not given:
        found = certificates(filter(None, map(_read_file, _USUAL_FILES)))
        found = found or certificates(_read_directories(_USUAL_DIRECTORIES))
    if found:
        return found
    where = " and ".join(filter(None, (places.file, *places.directories))) or "no place"
    if given:
        raise ConfigError(
            f"--cacert system: there are no certificates in {where}, where {given} leads OpenSSL; correct "
            "or unset it (a directory needs: openssl rehash DIRECTORY)"
        )
    raise ConfigError(
        f"--cacert system: this system has no CA certificates, neither in {where} nor where distributions "
        "have them; install them (the package is mostly called ca-certificates), or give --cacert FILE.pem"
    )


def certificates(texts: Iterable[bytes]) -> bytes:
    """Return each certificate in ``texts`` once, as PEM. What else is there is left out."""
    return b"".join(dict.fromkeys(block for text in texts for block in certificates_in(text)))


def certificates_in(text: bytes) -> list[bytes]:
    """Return the certificates in ``text``, each as PEM with a line feed at its end."""
    return [match[0].replace(b"\r\n", b"\n") + b"\n" for match in _BLOCK.finditer(text)]


def _ask_openssl() -> list[str]:
    try:
        # Isolated, so that nothing that is installed or in the current directory can change ssl.
        done = subprocess.run(
            [interpreter(), "-I", "-S", "-c", _ASK], capture_output=True, check=True, timeout=60
        )
        paths: list[str] = json.loads(done.stdout)
    except (BootError, OSError, ValueError, subprocess.SubprocessError):
        return ["SSL_CERT_FILE", "", "SSL_CERT_DIR", ""]  # not a Python that can be started
    return paths


def _read_file(path: str, variable: str = "") -> bytes:
    """Return the content of ``path``, b"" if it cannot be read and no ``variable`` names it.

    Raises ConfigError.
    """
    try:
        return read_small(path)
    except OSError as error:
        if variable:
            raise ConfigError(
                f"--cacert system: {variable} is {path}, which cannot be read ({error.strerror}); "
                "correct or unset it"
            ) from None
        return b""


def _read_directories(paths: Iterable[str]) -> Iterator[bytes]:
    for path in paths:
        try:
            names = sorted(filter(_HASHED, os.listdir(path)))
        except OSError:
            continue
        for name in names:
            yield _read_file(os.path.join(path, name))
