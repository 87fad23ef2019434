"""List the cells of the matrix: each line of ``CELLS`` is one, with the expected result.

A line has the Pythons that it is for, its name, the packages, the set-up of the process (a module of
``inside/setups``), and the verdict. This is the only list: compose.yaml is generated from it, and ``make
matrix-native`` runs it.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "CELLS", "LEGACY", "MAIN_JOB", "MODERN", "NEWEST", "NEWEST_PYPY", "NO_LENGTHS", "OWN", "REQUESTS_23",
    "Cell", "Pins",
]  # fmt: skip

ROOT = Path(__file__).resolve().parents[1]

CONCURRENT, SERIALIZED, ERROR, EXACT = "concurrent", "serialized", "error", "exact"
LEGACY = ("2.7", "3.7")
MODERN = ("3.10", "3.11", "3.12", "3.13", "3.14", "3.15", "pypy3.11")
MAIN_JOB = "main_job"  # instead of a set-up: 2,000 files through the downloader
NO_LENGTHS = "unstated"  # responses without Content-Length, ended by closing the connection


@dataclass(frozen=True)
class Pins:
    """The packages of an environment, as pip takes them; the newest where no version is given."""

    name: str
    packages: tuple[str, ...]

    def __init__(self, name: str, *packages: str) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "packages", tuple(word for part in packages for word in part.split()))


@dataclass(frozen=True)
class Cell:
    """A measurement, and its expected result."""

    name: str
    python: str
    pins: Pins
    setup: str
    expected: str
    answers: str = "delayed"

    @property
    def environment(self) -> str:
        """Return the name of its virtual environment or image, which cells with the same packages share."""
        return f"{self.pins.name}-py{self.python.removeprefix('py')}"

    @property
    def diagnosis(self) -> str | None:
        """Return the verdict expected of ``python -m diagnostics``; None if it cannot test the cell.

        Its built-in server always sends Content-Length.
        """
        if self.answers == NO_LENGTHS:
            return None
        return CONCURRENT if self.setup == MAIN_JOB else self.expected

    @property
    def diagnosed_as(self) -> tuple[str, ...]:
        """Return the options that set up the process under diagnosis in the same way."""
        if self.setup == MAIN_JOB:
            return ("--style", "downloader")
        return ("--app", f"setups.{self.setup}")


def _own() -> str:
    """Return the downloader's own requirements, separated by spaces."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    lines = parser["options"]["install_requires"].splitlines()
    return " ".join(line.replace(" ", "") for line in lines if line and not line.startswith("#"))


# The versions of 2019. greenlet and cryptography are pinned only so that the others install and can be
# imported today.
STAGE_01 = Pins("story", "gevent==1.4.0 greenlet==0.4.16 grequests==0.3.0 requests==2.21.0 urllib3==1.24.1")
STAGE_02 = Pins("story-pyopenssl", *STAGE_01.packages, "pyOpenSSL==19.0.0 cryptography==2.6.1")
STAGE_03 = Pins("story-gevent-openssl", *STAGE_02.packages, "gevent-openssl==1.2")

_PATCHED = "gevent-openssl==1.2 grequests>=0.7 pyOpenSSL"
OWN = Pins("own", _own())
NEWEST = Pins("newest", *OWN.packages, _PATCHED)
_2022 = "requests==2.28.2 urllib3==1.26.20 grequests==0.7.0 pyOpenSSL"
# msgspec, which the downloader needs, does not support PyPy: it cannot run there, and the diagnostics run
# on another interpreter. cryptography's builds for PyPy from 47 on cannot be
# loaded by every PyPy 7.3.
NEWEST_PYPY = Pins("newest-pypy", "gevent requests urllib3 cryptography<47", _PATCHED)
GEVENT_22 = Pins(
    "gevent-22.10", "gevent==22.10.2 greenlet<3.1 zope.interface<6 zope.event<5 setuptools<70", _2022
)
GEVENT_23 = Pins("gevent-23.9", "gevent==23.9.1 greenlet<3.2", _2022)
GEVENT_24 = Pins("gevent-24.11", "gevent==24.11.1 greenlet<3.2", _2022)
REQUESTS_23 = Pins(
    "requests-2.23",
    "gevent requests==2.23.0 urllib3==1.25.11 grequests==0.7.0 pyOpenSSL==21.0.0 cryptography==3.4.8",
)
REQUESTS_24 = Pins(
    "requests-2.24",
    "gevent requests==2.24.0 urllib3==1.25.11 grequests==0.7.0 pyOpenSSL==21.0.0 cryptography==3.4.8",
)
GOOGLE_AUTH = Pins("google-auth-2.23", "gevent requests google-auth==2.23.0 grequests==0.7.0 pyOpenSSL")


def _on(
    pythons: str, name: str, pins: Pins, setup: str, expected: str, answers: str = "delayed"
) -> Iterator[Cell]:
    for python in pythons.split():
        yield Cell(f"{name}-py{python.removeprefix('py')}", python, pins, setup, expected, answers)


_CPYTHON = " ".join(python for python in MODERN if not python.startswith("pypy"))
_PYPY = " ".join(python for python in MODERN if python.startswith("pypy"))


def _modern(name: str, setup: str, expected: str) -> Iterator[Cell]:
    """Yield the cells of a line with today's packages."""
    yield from _on(_CPYTHON, name, NEWEST, setup, expected)
    yield from _on(_PYPY, name, NEWEST_PYPY, setup, expected)


CELLS: tuple[Cell, ...] = (
    # The published case: https://github.com/saurabh-hirani/grequests-https-python-27-37-tests
    *_on("2.7", "stage-00", STAGE_02, "grequests_only", SERIALIZED),
    *_on("3.7", "stage-00", STAGE_01, "grequests_only", CONCURRENT),
    *_on("2.7 3.7", "stage-01", STAGE_01, "grequests_only", CONCURRENT),
    *_on("2.7 3.7", "stage-02", STAGE_02, "grequests_only", SERIALIZED),
    *_on("2.7", "stage-03", STAGE_03, "gevent_openssl_grequests", CONCURRENT),
    *_on("3.7", "stage-03", STAGE_03, "gevent_openssl_grequests", SERIALIZED),
    *_on("2.7 3.7", "stage-04", STAGE_03, "gevent_openssl_as_published", CONCURRENT),
    *_on("2.7", "stage-04-no-length", STAGE_03, "gevent_openssl_as_published", CONCURRENT, NO_LENGTHS),
    *_on("3.7", "stage-04-no-length", STAGE_03, "gevent_openssl_as_published", ERROR, NO_LENGTHS),
    *_on("2.7 3.7", "stage-04-ours", STAGE_03, "waiting_openssl_grequests", CONCURRENT),
    *_on(
        "2.7 3.7", "stage-04-ours-no-length", STAGE_03, "waiting_openssl_grequests", CONCURRENT, NO_LENGTHS
    ),
    # Packages between those and today's.
    *_on("3.10", "requests-2.23", REQUESTS_23, "grequests_only", SERIALIZED),
    *_on("3.10", "requests-2.24", REQUESTS_24, "grequests_only", CONCURRENT),
    *_on("3.10", "google-auth-2.23", GOOGLE_AUTH, "google_auth_mtls", SERIALIZED),
    *_on("3.10", "gevent-22.10-grequests", GEVENT_22, "grequests_only", CONCURRENT),
    *_on("3.10", "gevent-22.10-injected", GEVENT_22, "grequests_injected", SERIALIZED),
    *_on("3.10", "gevent-22.10-patch-all", GEVENT_22, "patch_all_injected", CONCURRENT),
    *_on("3.10", "gevent-23.9-grequests", GEVENT_23, "grequests_only", CONCURRENT),
    *_on("3.10", "gevent-23.9-injected", GEVENT_23, "grequests_injected", SERIALIZED),
    *_on("3.10", "gevent-23.9-patch-all", GEVENT_23, "patch_all_injected", CONCURRENT),
    *_on("3.10", "gevent-24.11-grequests", GEVENT_24, "grequests_only", CONCURRENT),
    *_on("3.10", "gevent-24.11-injected", GEVENT_24, "grequests_injected", SERIALIZED),
    *_on("3.10", "gevent-24.11-patch-all", GEVENT_24, "patch_all_injected", CONCURRENT),
    # Today's packages.
    *_modern("a-grequests", "grequests_only", CONCURRENT),
    *_modern("b-injected", "grequests_injected", SERIALIZED),
    *_modern("c-patch-all", "patch_all_injected", CONCURRENT),
    *_modern("d-gevent-openssl", "gevent_openssl_grequests_injected", SERIALIZED),
    *_modern("d-gevent-openssl-patch-all", "gevent_openssl_patch_all_injected", CONCURRENT),
    *_modern("d-ours", "waiting_openssl_grequests_injected", CONCURRENT),
    *_modern("e-requests-first", "requests_first", ERROR),
    *_on(_CPYTHON, "main-job", NEWEST, MAIN_JOB, EXACT),
)
