"""What our processes may import: nothing from the current directory, nothing from DEST.

A server chooses the names of the files in DEST; ``json.py`` there must stay a file. Python puts the current
directory first on ``sys.path`` for ``-m`` and ``-c``, and for each empty entry in PYTHONPATH. So

- ``child()`` is the only way in which an interpreter of ours is started;
- ``guard()`` is the first call in each of our processes, the command line's too. Forked children inherit it.

Both leave the rest of ``sys.path`` as the interpreter made it: virtual environments, editable installs, and
absolute entries of PYTHONPATH work. Our own packages are found where this file is, so a source checkout works
as the current directory although it is not on the path.

This module is imported before the path is safe. It must import only what the interpreter has loaded by then:
no ``__future__``, no ``typing``.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

__all__ = ["ROOT", "begin", "child", "environment", "guard"]

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The directory (or zip file) that our packages are in."""

_PACKAGES = ("downloader", "diagnostics")

# Python 3.10 has no -P: there the entry "", which -c brings, goes before anything is imported.
_BEGIN = (
    "import sys; sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]; "
    "from downloader.isolation import begin; begin()"
)


def child(entry: str, *args: str, dest: str = "") -> tuple[list[str], dict[str, str]]:
    """Return argv and environment of a process that calls ``entry`` ("module:function") with this interpreter.

    The function takes no argument, finds ``args`` in ``sys.argv[1:]``, and returns the exit code.
    ``dest`` is a directory that nothing is imported from, besides the current one.
    """
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
    return [sys.executable, *options, "-c", _BEGIN, ROOT, entry, *args], environment(dest)


def environment(dest: str = "") -> dict[str, str]:
    """Return our environment for a child: PYTHONPATH keeps absolute entries other than the current
    directory and ``dest``."""
    env = dict(os.environ)
    unwanted = _unwanted(dest)
    entries = env.pop("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in entries if os.path.isabs(entry) and os.path.realpath(entry) not in unwanted]
    if kept:
        env["PYTHONPATH"] = os.pathsep.join(kept)
    return env


def begin() -> None:
    """Run the process that ``child`` described."""
    del sys.path[0]  # ROOT, for this import only
    guard()
    from importlib import import_module

    module, _, function = sys.argv.pop(1).partition(":")
    sys.exit(getattr(import_module(module), function)())


def guard(dest: str = "") -> None:
    """Take the current directory and ``dest`` off ``sys.path``, for this process and those it forks."""
    unwanted, own = _unwanted(dest), _interpreters_own()
    sys.path[:] = [
        entry for entry in sys.path if entry in own or (entry and os.path.realpath(entry) not in unwanted)
    ]
    if _Packages not in sys.meta_path:
        sys.meta_path.insert(0, _Packages)
    # What `pip install --target` made has our requirements beside us. Last, so that it hides nothing.
    installed = os.path.isdir(ROOT) and any(map(_is_our_metadata, os.listdir(ROOT)))
    if installed and ROOT not in sys.path and not (dest and _same(ROOT, dest)):
        sys.path.append(ROOT)


class _Packages:
    """Finds our own packages beside this file, wherever ``sys.path`` leads."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Return the spec of one of ``_PACKAGES``; the import system calls this for every module."""
        if name not in _PACKAGES:
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [ROOT])


def _unwanted(dest: str) -> set[str]:
    """Return the real paths of the current directory, ``dest``, and what PYTHONPATH names relatively."""
    relative = [
        entry
        for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if entry and not os.path.isabs(entry)
    ]
    found = set()
    for path in (os.curdir, *relative, dest):
        try:
            found.add(os.path.realpath(path or os.curdir))
        except OSError:
            pass  # the current directory was removed
    return found


def _interpreters_own() -> set[str]:
    """Return the entries that the interpreter needs, even where one is the current directory."""
    library = os.path.dirname(os.__file__)
    own = {library, os.path.join(library, "lib-dynload")}
    site = sys.modules.get("site")
    if site is not None:
        own.update(site.getsitepackages(), [site.getusersitepackages()])
    return own


def _is_our_metadata(name: str) -> bool:
    return name.startswith("mass_downloader-") and name.endswith(".dist-info")


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
