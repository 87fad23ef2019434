"""Control what our processes may import: nothing from the current directory, nothing from DEST.

A server chooses the names of the files in DEST; ``json.py`` there must never be imported. Python puts the
current directory first on ``sys.path`` for ``-m`` and ``-c``, and for each empty entry in PYTHONPATH.
Therefore:

- ``child()`` is the only way in which an interpreter of ours is started;
- ``guard()`` is the first call in each of our processes. Forked processes inherit its effect.

Both leave the rest of ``sys.path`` as the interpreter and the program made it, and a child gets that of its
parent: virtual environments, editable installs, absolute entries of PYTHONPATH, and what a PEX, Bazel or
buildout puts there itself work. Our own packages are found where this file is, so a source checkout can be
the current directory although that is not on the path.

This module is imported before the path is safe. It must import only what the interpreter has loaded by
then: no ``__future__``, no ``typing``.
"""

import gc
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["ROOT", "begin", "child", "environment", "guard", "handed_on", "is_exposed", "why_missing"]

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
"""The directory (or zip file) that contains our packages."""

_PACKAGES = ("downloader", "diagnostics")
_COMMANDS = ("downloader.__main__", "diagnostics.__main__")

# Python 3.10 has no -P: the entry "" that -c adds is removed before anything is imported.
_BEGIN = (
    "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "from downloader.process.isolation import begin; begin()"
)


def child(entry: str, *args: str, dest: str = "") -> tuple[list[str], dict[str, str]]:
    """Return argv and environment to call ``entry``, "module:function", in a process of this interpreter.

    The function takes no argument, finds ``args`` in ``sys.argv[1:]``, and returns the exit code. Besides
    the current directory, nothing is imported from ``dest``. Raises BootError where no Python is found.
    """
    from downloader.files.interpreter import interpreter

    path = handed_on(dest)
    options = [
        option
        for option, given in (
            ("-P", sys.version_info >= (3, 11)),
            ("-I", sys.flags.isolated),
            ("-E", sys.flags.ignore_environment),
            ("-s", sys.flags.no_user_site),
        )
        if given
    ]
    argv = [interpreter(), *options, "-c", _BEGIN, ROOT, str(len(path)), *path, entry, *args]
    return argv, environment(dest)


def handed_on(dest: str = "") -> list[str]:
    """Return our ``sys.path`` for a child: what ``guard`` leaves of it, without the script's directory.

    Python itself puts that there, for the script; modules in it may have the names of others.
    """
    path = [entry for entry in _guarded(sys.path, dest) if os.path.isabs(entry)]
    file = None if _is_safe() else getattr(sys.modules.get("__main__"), "__file__", None)
    beside = file and os.path.dirname(_real(file))
    # Once: the program or PYTHONPATH may name it, too.
    first = next((entry for entry in path if _real(entry) == beside), "")
    if first and first not in _interpreters_own():
        path.remove(first)
    return path


def environment(dest: str = "") -> dict[str, str]:
    """Return our environment for a child.

    PYTHONPATH keeps absolute entries other than the current directory and ``dest``.
    """
    env = dict(os.environ)
    unwanted = _unwanted(dest)
    entries = env.pop("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in entries if os.path.isabs(entry) and _real(entry) not in unwanted]
    if kept:
        env["PYTHONPATH"] = os.pathsep.join(kept)
    return env


def begin() -> None:
    """Run the entry that ``child`` put into argv."""
    end = 2 + int(sys.argv[1])
    sys.path[:] = sys.argv[2:end]  # without ROOT, which was for this import only
    del sys.argv[1:end]
    try:
        guard()
        from importlib import import_module

        from downloader.process.interrupts import inherit_none

        inherit_none()
        module, _, function = sys.argv.pop(1).partition(":")
        gc.disable()  # imports make no garbage
        entry = getattr(import_module(module), function)
        gc.enable()
    except KeyboardInterrupt:
        sys.exit(130)  # Ctrl-C, which a terminal sends to the whole process group; nothing has begun
    sys.exit(entry())


def guard(dest: str = "") -> None:
    """Remove the current directory and ``dest`` from ``sys.path``, for this process and those it forks."""
    sys.path[:] = _guarded(sys.path, dest)
    if _Packages not in sys.meta_path:
        sys.meta_path.insert(0, _Packages)
    # `pip install --target` puts our requirements beside our packages. Last, so that it shadows nothing.
    if ROOT not in sys.path and _real(ROOT) != _real(dest) and _is_installed():
        sys.path.append(ROOT)
    # A zip file has the versions of them that it was made with.
    if ROOT not in sys.path and os.path.isfile(ROOT):
        sys.path.insert(0, ROOT)


def _guarded(path: list[str], dest: str) -> list[str]:
    """Return ``path`` without the current directory and ``dest``."""
    unwanted, own = _unwanted(dest), _interpreters_own()
    return [entry for entry in path if entry in own or _real(entry) not in unwanted]


def is_exposed(dest: str) -> bool:
    """Return True when ``python -m`` started this process in ``dest``.

    Python then imports from there before ``guard`` can be called.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return (
        spec is not None and spec.name in _COMMANDS and not _is_safe() and _real(os.curdir) == _real(dest)
    )


def why_missing() -> str:
    """Return why a module that others find is not found here, and what to do; "" if that is not known."""
    if relative := _relative_entries():
        return (
            f"nothing is imported from {relative[0]}, which PYTHONPATH names relatively: "
            "make its entries absolute"
        )
    for entry in sys.path:
        if os.path.isfile(entry):
            return (
                f"{entry} is a zip file, from which nothing compiled is imported: "
                "install the requirements into a directory"
            )
    return ""


def _is_safe() -> bool:
    """Return whether Python was told to put no directory of its own choice on the path."""
    return bool(sys.flags.isolated or getattr(sys.flags, "safe_path", False))


class _Packages:
    """The finder of our own packages: beside this file, independent of ``sys.path``."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Return the spec of one of ``_PACKAGES``; the import system calls this for every module."""
        if name not in _PACKAGES:
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [ROOT])


def _unwanted(dest: str) -> set[str]:
    """Return the real paths of the current directory, ``dest``, and the relative entries of PYTHONPATH."""
    return {"", *map(_real, (os.curdir, *_relative_entries(), dest))}


def _relative_entries() -> list[str]:
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in entries if entry and not os.path.isabs(entry)]


def _interpreters_own() -> set[str]:
    """Return the entries that the interpreter needs, even where one is the current directory."""
    library = os.path.dirname(os.__file__)
    own = {library, os.path.join(library, "lib-dynload")}
    site = sys.modules.get("site")
    if site is not None:
        own.update(site.getsitepackages(), [site.getusersitepackages()])
    return own


def _is_installed() -> bool:
    """Return True when pip put our packages into ROOT, as opposed to a source checkout or a zip file."""
    names = os.listdir(ROOT) if os.path.isdir(ROOT) else []
    return any(name.startswith("mass_downloader-") and name.endswith(".dist-info") for name in names)


def _real(path: str) -> str:
    """Return the real path; "" for "", and for a relative path when the current directory was removed."""
    try:
        return os.path.realpath(path) if path else ""
    except OSError:
        return ""
