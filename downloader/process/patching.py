"""Patch the process: ``apply()`` first, then import requests, then ``secure_urllib3()``.

::

    forked child: apply()         inspect → decide → patch → install the guard → verify
    clients, sources: require()   import requests   secure_urllib3()   require() at the first request

No other module patches. Anything that serializes or breaks HTTPS raises ``UnsafeProcess`` with a sentence
that names the code responsible. The decision depends on the state of the process, not on how it was
reached: a process that other code has patched completely, before anything bound the original ``ssl``, is
accepted.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple, NoReturn, cast

import msgspec

from downloader.errors import UnsafeProcess
from downloader.process import tls_facts
from downloader.process.private_parts import hub_exists, patched_modules

__all__ = ["Patched", "apply", "culprit", "require", "secure_urllib3"]

_FORBIDDEN: Final = {
    "inject_into_urllib3": "pyOpenSSL in urllib3 can hold every other request of the process",
    "inject_into_ssl": "with gevent's ssl, no request of truststore's succeeds",
}
_WATCHED: Final = (".contrib.pyopenssl", ".truststore", ".truststore._api")
_IMPORTED_IN: Final = os.getpid()  # a fork has another pid
_applied: Final[dict[int, Patched]] = {}  # by pid: a fork does not count as patched
_warned: Final[list[str]] = []  # by gevent, while patching, which cannot be repeated


class Patched(msgspec.Struct, frozen=True):
    """What ``apply()`` found and did; ``modules`` are the standard modules that gevent replaced."""

    modules: tuple[str, ...]
    select: bool
    thread: bool
    ssl: bool
    gevent: str
    pyopenssl_undone: bool = False

    @property
    def summary(self) -> str:
        """Return one line for the report."""
        names = " ".join(name for name in self.modules if not name.startswith("_"))
        injected = "pyOpenSSL taken out of" if self.pyopenssl_undone else "no pyOpenSSL in"
        return f"patched: {names}; gevent {self.gevent}; {injected} urllib3"


class _Found(NamedTuple):
    """The state of a process before ``apply()`` changes anything."""

    hub: bool
    forked: bool  # since this module was imported
    missing: list[str]  # functions that are not gevent's: `tls_facts.missing`
    early: list[str]  # imported modules that must not be imported yet
    stale: str = ""  # a module that bound ssl before patching


def _fault(found: _Found) -> tuple[str, str] | None:
    """Return why ``found`` cannot be made safe, and which module's importer caused it; None if it can."""
    untouched = len(found.missing) == sum(len(names) for _, names in tls_facts.STANDARD.values())
    if found.missing and not untouched:
        # The patching is not completed here: a second patch_all() would replace select and the locks,
        # but not what was bound in between (`from threading import RLock` in urllib3, running threads),
        # and the code that left them out may depend on it. To refuse is simpler than to prove it safe.
        missing = ", ".join(found.missing)
        return f"gevent patched only a part of this process, not {missing}", "gevent.monkey"
    if found.hub and (untouched or found.forked):
        return f"a gevent hub existed before {'the fork' if found.forked else 'patching'}", "gevent"
    if found.stale:
        return f"{found.stale} bound ssl before gevent patched it", found.stale
    if untouched and found.early:
        return f"{', '.join(found.early)} imported before patching", found.early[0]
    return None


def apply() -> Patched:
    """Patch this process completely, or accept one that is patched; call it first in a forked child.

    Idempotent. Raises UnsafeProcess; the process can then only report the error and exit.
    """
    if os.getpid() in _applied:
        return require()
    found = _Found(
        hub=hub_exists(),
        forked=os.getpid() != _IMPORTED_IN,
        missing=tls_facts.missing(),
        early=[name for name in ("ssl", "urllib3", "requests") if name in sys.modules],
        stale=_stale(),
    )
    if fault := _fault(found):
        raise UnsafeProcess(f"{fault[0]}: {culprit(fault[1])}")
    import gevent
    from gevent import monkey

    if found.missing:
        with warnings.catch_warnings(), _plugins_read_once():
            warnings.simplefilter("error", monkey.MonkeyPatchWarning)
            try:
                monkey.patch_all()
            except monkey.MonkeyPatchWarning as warning:
                _warned.append(str(warning))
    if _warned:
        raise UnsafeProcess(f"gevent warned while patching: {_warned[0]}")
    if not any(isinstance(finder, _Guard) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Guard())
    for name in [name for name in list(sys.modules) if f".{name}".endswith(_WATCHED)]:
        _disarm(sys.modules[name])
    _applied[os.getpid()] = Patched(
        modules=patched_modules(),
        select=monkey.is_object_patched("select", "poll"),
        thread=monkey.is_object_patched("_thread", "start_new_thread"),
        ssl=monkey.is_object_patched("ssl", "SSLContext"),
        gevent=gevent.__version__,
        pyopenssl_undone=_undo_injections(),
    )
    return require()


@contextlib.contextmanager
def _plugins_read_once() -> Iterator[None]:
    """Read the entry points of installed packages once while gevent patches.

    gevent looks 25 times whether a package has a plugin, each time in the files of all installed packages:
    half of the time that patching takes.
    """
    from importlib import metadata

    original = metadata.entry_points
    found: Any = original()
    metadata.entry_points = found.select
    try:
        yield
    finally:
        metadata.entry_points = original


def require() -> Patched:
    """Raise UnsafeProcess unless ``apply()`` patched this very process and it is still safe.

    A fork of a patched process is another process: call ``apply()`` in it, which accepts it as it is if no
    hub existed before the fork. Takes a few microseconds.
    """
    patched = _applied.get(os.getpid())
    if patched is None:
        other = "; it is a fork of one that was" if _applied else ""
        raise UnsafeProcess(f"downloader.process.patching.apply() did not patch this process{other}")
    if missing := tls_facts.missing():
        raise UnsafeProcess(f"in spite of patching, not gevent's: {', '.join(missing)}")
    for copy, injected, bound in tls_facts.tls_of_urllib3():
        if injected:
            raise UnsafeProcess(f"pyOpenSSL was injected into {copy}")
        if bound is not None and bound is not sys.modules["ssl"].SSLContext:
            raise UnsafeProcess(f"{copy} uses {bound}, not gevent's SSLContext")
    return patched


def secure_urllib3() -> Patched:
    """Make the urllib3 that was just imported safe; call it after importing requests.

    Undoes an injection that bypassed the guard, and gives the pools gevent's queue: with the standard queue
    their finalizer can hang (urllib3 >= 1.26.16).
    """
    undone = _undo_injections()
    patched = require()
    from gevent.queue import LifoQueue
    from urllib3.connectionpool import ConnectionPool

    ConnectionPool.QueueCls = LifoQueue
    undone |= patched.pyopenssl_undone
    _applied[os.getpid()] = patched = msgspec.structs.replace(patched, pyopenssl_undone=undone)
    return patched


def _names(module: str) -> list[tuple[str, Any]]:
    return list(getattr(sys.modules.get(module), "__dict__", {}).items())


def _stale() -> str:
    """Return the name of a module that holds an unpatched ssl class, subclass or instance, or ""."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None or not monkey.is_module_patched("ssl"):
        return ""
    ssl = sys.modules["ssl"]
    pairs = [(monkey.get_original("ssl", n), getattr(ssl, n)) for n in ("SSLContext", "SSLSocket")]
    for name in list(sys.modules):
        if name in ("ssl", "_ssl") or name.startswith("gevent."):
            continue
        for _, value in _names(name):
            kind = value if issubclass(type(value), type) else type(value)
            if any(issubclass(kind, old) and not issubclass(kind, new) for old, new in pairs):
                return name
    return ""


def _undo_injections() -> bool:
    """Extract pyOpenSSL from every urllib3; return True if one had it.

    ``require()`` raises if one still has it.
    """
    injected = tls_facts.injected()
    for copy in injected:
        culprit = sys.modules.get(f"{copy}.contrib.pyopenssl")
        if extract := getattr(culprit, "extract_from_urllib3", None):
            extract()
    return bool(injected)


def _disarm(module: ModuleType) -> None:
    """Replace the functions of ``module`` that inject with ones that raise and name their caller."""
    for name in _FORBIDDEN.keys() & vars(module).keys():

        def refuse(*_: object, name: str = name, **__: object) -> NoReturn:
            caller = sys._getframe(1)
            where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            raise UnsafeProcess(f"{where} called {module.__name__}.{name}(): {_FORBIDDEN[name]}")

        setattr(module, name, refuse)


class _Guard:
    """The first finder of ``sys.meta_path``: has the others find watched modules, and disarms these."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> Any:
        if not f".{name}".endswith(_WATCHED):
            return None
        specs = (f.find_spec(name, path, target) for f in sys.meta_path if f is not self)
        spec = next(filter(None, specs), None)
        if spec is None or (loader := spec.loader) is None:
            return spec

        def exec_module(module: ModuleType) -> None:
            spec.loader = module.__loader__ = loader
            loader.exec_module(module)
            _disarm(module)

        methods = {"create_module": loader.create_module, "exec_module": exec_module}
        spec.loader = cast(Any, SimpleNamespace(**methods))
        return spec


def culprit(name: str) -> str:
    """Return ``file:line (app → requests → … → name)``: the import chain of ``name``, as far as known.

    It is derived from the names that modules keep, and from the sources where an import kept no name.
    """
    chain, sources = [name], []
    while not _is_own(chain[0]) and (importer := _importer(chain[0], chain)):
        chain.insert(0, importer)
    if not _is_own(chain[0]):
        sources = [(own, _file(own)) for own in list(sys.modules) if _is_own(own)]
        pths = (glob.glob(os.path.join(glob.escape(folder), "*.pth")) for folder in sys.path)
        sources += [(os.path.basename(pth), pth) for found in pths for pth in found]
    candidates = ((label, path, at) for label, path in sources if (at := _line(path, chain[0])))
    label, file, line = next(candidates, ("", "", 0))
    if label:
        chain.insert(0, label)
    elif chain[1:] or _is_own(name):
        file = _file(chain[0])
        line = _line(file, [*chain, "ssl"][1])
    where = f"{file}:{line}" if line else file or "its importer left no trace"
    return f"{where} ({' → '.join(chain)})"


def _is_own(name: str) -> bool:
    """Return whether ``name`` is the user's: not the standard library's, a package's or this module."""
    root = name.partition(".")[0]
    packaged = re.search(r"[/\\](site|dist)-packages[/\\]", _file(name)) or name == __name__
    own = root in ("__main__", "sitecustomize", "usercustomize")
    return own or not (packaged or root in sys.stdlib_module_names)


def _file(name: str) -> str:
    return getattr(sys.modules.get(name), "__file__", None) or name


def _importer(name: str, beside: Sequence[str]) -> str | None:
    """Return the module that imported ``name``: of those with a name for it, the first finished after it.

    A module moves to the end of ``sys.modules`` when its import is finished; those before it are
    unfinished.
    """
    order = list(sys.modules)
    at = order.index(name) if name in order else len(order)
    package = name.rpartition(".")[0] or name
    skipped = (f"{name}.", f"_{name}", "gevent" if name == "gevent.monkey" else " ")
    for candidate in order[at + 1 :] + order[:at][::-1]:
        if candidate in beside or candidate.startswith(skipped):
            continue
        if _refers(candidate, name):
            return candidate
        # `import http.client` keeps a name for `http` only; then the source text decides.
        if _refers(candidate, package) and _line(_file(candidate), name):
            return candidate
    return None


def _refers(module: str, name: str) -> bool:
    for _, value in _names(module):
        kind = type(value)
        named = "__name__" if issubclass(kind, ModuleType) else "__module__"
        if issubclass(kind, (type, FunctionType, ModuleType)):
            origin = f"{getattr(value, named, '')}."
            if origin.startswith(f"{name}."):
                return True
    return False


def _line(file: str, name: str) -> int:
    """Return the line of ``file`` that imports ``name`` (for gevent.monkey: that patches), or 0."""
    dotted = r"\b.*\b".join(map(re.escape, name.split(".")))
    pattern = rf"[ \t]*(?:from|import)\b.*\b{dotted}\b"
    if name == "gevent.monkey":
        pattern = r"[^#]*\bpatch_(?:all|socket|ssl|select|thread|time)\("
    with contextlib.suppress(OSError), open(file, encoding="utf-8", errors="replace") as lines:
        return next((n for n, line in enumerate(lines, 1) if re.match(pattern, line)), 0)
    return 0
