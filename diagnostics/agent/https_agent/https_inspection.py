"""Tell whether HTTPS will be serialized in this process, by looking at it.

One file that needs the standard library alone, on Python 2.7 and from 3.6: copy it into a project, or
install it by itself. It sends nothing, patches nothing, and takes milliseconds::

    import https_inspection

    https_inspection.inspect().causes   # what will serialize or break HTTPS under gevent; or []
    https_inspection.exit_if_serial()   # ends the process with status 3 where there is a cause

It imports nothing that a process may not have imported yet, and so can be called before or after anything.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Set, Tuple

    Spot = Tuple[str, int, str]  # file, line, function
    Step = Tuple[int, Optional[List[str]], bool]  # line, imported names, whether in a function

__all__ = ["Cause", "Inspection", "exit_if_serial", "inspect"]
__version__ = "1.0"

SERIAL = 3
"""The exit status of ``exit_if_serial``. gunicorn ends with such a worker; others it starts again."""

# What is patched: the text of `downloader/process/tls_facts.py`, which a file that is copied cannot import.

_THREAD = "thread" if sys.version_info[0] == 2 else "_thread"

STANDARD = {
    "socket": ("socket", ("socket", "create_connection")),
    "dns": ("socket", ("getaddrinfo",)),
    "ssl": ("ssl", ("SSLContext", "SSLSocket")),
    "select": ("select", ("select", "poll")),
    "selectors": ("selectors", ("DefaultSelector",)),
    "thread": (_THREAD, ("start_new_thread", "allocate_lock", "get_ident")),
    "threading": ("threading", ("local",)),
    "time": ("time", ("sleep",)),
    "os": ("os", ("fork",)),
    "subprocess": ("subprocess", ("Popen",)),
    "signal": ("signal", ("signal",)),
    "queue": ("queue", ("SimpleQueue",)),
}  # type: Dict[str, Tuple[str, Tuple[str, ...]]]
"""By fact: a module of the standard library, and its functions that gevent replaces."""


def is_gevents(module, attribute):
    # type: (str, str) -> bool
    """Return whether ``attribute`` of a module of the standard library is gevent's; imports nothing.

    Objects are compared by identity: ``gevent.monkey.is_object_patched`` still returns True after an
    attribute was replaced once more.
    """
    value = getattr(sys.modules.get(module), attribute, None)
    if value is None:
        return False
    theirs = sys.modules.get("gevent." + module.lstrip("_"))
    if hasattr(theirs, attribute):
        return getattr(theirs, attribute) is value
    # gevent has the object in a module of another name: `gevent._ssl3`, `gevent._sslgte279`.
    return (getattr(value, "__module__", None) or "").split(".")[0] == "gevent"


def patched():
    # type: () -> Dict[str, bool]
    """Return for each fact of ``STANDARD`` whether its functions are gevent's.

    Modules that are not imported, and functions that this version of Python lacks, are left out.
    """
    found = {}  # type: Dict[str, bool]
    for fact, (module, attributes) in STANDARD.items():
        present = [each for each in attributes if hasattr(sys.modules.get(module), each)]
        if present:
            found[fact] = all(is_gevents(module, each) for each in present)
    return found


def tls_of_urllib3():
    # type: () -> Iterator[Tuple[str, bool, Any]]
    """Yield name, whether pyOpenSSL is injected, and SSLContext of each copy of urllib3, also vendored."""
    for name in sorted(name for name in list(sys.modules) if name.endswith(".util.ssl_")):
        tls, util = sys.modules[name], sys.modules.get(name[: -len(".ssl_")])
        context = getattr(tls, "SSLContext", None)
        flags = [getattr(module, "IS_PYOPENSSL", False) for module in (tls, util)]
        # A module that loads itself lazily may return anything for a name that it does not have.
        is_injected = any(flag is True for flag in flags)
        is_injected = is_injected or "pyopenssl" in (getattr(context, "__module__", "") or "")
        yield name[: -len(".util.ssl_")], is_injected, context


def injected():
    # type: () -> List[str]
    """Return the names of the copies of urllib3 that have pyOpenSSL injected."""
    return [copy for copy, is_injected, _ in tls_of_urllib3() if is_injected]


# Files

_LIBRARY = os.path.dirname(os.path.abspath(os.__file__))
try:
    _START = os.getcwd()  # where the process was started: it may change its directory
except OSError:
    _START = ""  # it was removed
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")
_PACKED = (".whl", ".egg")  # of folders that are packages by themselves, as pex and setuptools make them


def absolute(path):
    # type: (str) -> str
    """Return the absolute path, relative to where the process was started."""
    return os.path.normpath(os.path.join(_START, path))


def kind_of_file(name):
    # type: (str) -> str
    """Return ``user``, ``package``, ``library``, ``gevent`` or ``import`` (the import machinery) for the
    name of a source file."""
    if name.startswith("<frozen importlib") or ("importlib" in name and "_bootstrap" in name):
        return "import"
    if name.startswith("<"):
        return "library"
    path = absolute(name)
    if _is_at_work(path):
        return "user"
    parts = _parts(path)
    # A script of a package that was packed, too, only calls what is in the pack.
    if is_start_code(path) or (parts[-2:-1] == ["bin"] and set(parts[-3:-2]) & set(_PACKAGE_FOLDERS)):
        return "library"
    if any(each in _PACKAGE_FOLDERS or each.endswith(_PACKED) for each in parts[:-1]):
        return "gevent" if "gevent" in parts or "greenlet" in parts else "package"
    if path.startswith(_LIBRARY + os.sep):
        return "library"
    if path.startswith(os.path.join(sys.prefix, "bin") + os.sep):
        return "package"  # a console script: it only calls what is installed
    return "user"


def is_start_code(path):
    # type: (str) -> bool
    """Return whether the file is a packer's (pex, shiv): it starts the program that is packed with it."""
    parts, (folder, name) = _parts(path), os.path.split(path)
    if "/.bootstrap/pex/" in "/".join(parts):
        return True
    if name in ("__main__.py", "pex") and os.path.isfile(os.path.join(folder, "PEX-INFO")):
        return True
    archive = os.path.dirname(folder) if parts[-2:-1] == ["_bootstrap"] else folder
    return (archive != folder or name == "__main__.py") and os.path.isfile(archive) and _is_shiv(archive)


def _is_shiv(archive):
    # type: (str) -> bool
    """Return whether shiv made ``archive``."""
    import zipimport  # it has no code of Python's library that could be imported too early

    try:
        opened = zipimport.zipimporter(archive)
        for member in ("environment.json", os.path.join("_bootstrap", "environment.py")):
            opened.get_data(os.path.join(archive, member))
    except (ImportError, IOError, OSError):
        return False
    return True


def _parts(path):
    # type: (str) -> List[str]
    return path.replace("\\", "/").split("/")


# Where a program is started inside of an installed package, that package is the user's.
_WORK = _START if any(each in _parts(_START)[:-1] for each in _PACKAGE_FOLDERS) else ""


def _is_at_work(path):
    # type: (str) -> bool
    """Return whether ``path`` is in ``_WORK``, and not in packages that are installed further below."""
    if not _WORK or not path.startswith(_WORK + os.sep):
        return False
    rest = _parts(path[len(_WORK) :])
    return not any(each in rest for each in _PACKAGE_FOLDERS)


def contents(name):
    # type: (str) -> Dict[str, Any]
    """Return what is in a module now.

    Not by its attributes: one that loads itself lazily would do so, and another raises what it likes.
    """
    try:
        found = object.__getattribute__(sys.modules.get(name), "__dict__")
    except (AttributeError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def file_of(name):
    # type: (str) -> str
    """Return the source file of a module; "" if it has none."""
    path = contents(name).get("__file__")
    if path is None and name == "__main__":
        # A script that has run to its end no longer has the attribute.
        script = (getattr(sys, "argv", None) or [""])[0]
        path = script if os.path.isfile(absolute(script)) else None
    if not isinstance(path, str):
        return ""
    return path[:-1] if path.endswith(".pyc") else path


def _own_files():
    # type: () -> List[str]
    """Return the files of the user's own modules, to be searched where no stack shows the cause."""
    files = []
    for name in list(sys.modules):
        path = file_of(name)
        if path.endswith(".py") and kind_of_file(path) == "user" and not _is_ours(name):
            files.append(absolute(path))
    return files[:500]


def _is_ours(name):
    # type: (str) -> bool
    return name == __name__ or name.partition(".")[0] in _OURS


_OURS = ("https_agent", "https_inspection", "diagnostics", "downloader")


# Facts

_PACKAGES = (
    "aiohttp botocore certifi cryptography eventlet gevent gevent-openssl google-auth greenlet grequests"
    " gunicorn httpx httpx2 ndg-httpsclient pyopenssl requests snowflake-connector-python truststore"
    " urllib3"
).split()


def facts():
    # type: () -> Dict[str, Any]
    """Return the state of the process: versions, what is patched, which TLS urllib3 uses; imports
    nothing."""
    gevent, ssl = sys.modules.get("gevent"), sys.modules.get("ssl")
    return dict(
        changing(),
        python=".".join(str(part) for part in sys.version_info[:3]),
        implementation=getattr(getattr(sys, "implementation", None), "name", "cpython"),
        executable=sys.executable,
        library=_LIBRARY,
        prefix=sys.prefix,
        packages=_packages(),
        gevent=getattr(gevent, "__version__", None),
        gevent_openssl=sorted(name for name in list(sys.modules) if name.split(".")[0] == "gevent_openssl"),
        openssl=getattr(ssl, "OPENSSL_VERSION", None),
        cwd=absolute("."),
        path=[folder for folder in sys.path if isinstance(folder, str)],
        own_files=_own_files(),
    )


def changing():
    # type: () -> Dict[str, Any]
    """Return those facts that may change while the process runs; callable from any thread."""
    copies = injected()
    return {
        "patched": patched(),
        "pyopenssl_injected": bool(copies),
        "injected_copies": copies,
        "truststore_injected": bool(_of_truststore()[0]),
        "eventlet_patched": _of_eventlet(),
        "openssl": getattr(sys.modules.get("ssl"), "OPENSSL_VERSION", None),
    }


def _packages():
    # type: () -> Dict[str, str]
    """Return the installed versions of the relevant packages, from the names of their metadata folders."""
    found = {}  # type: Dict[str, str]
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except (OSError, TypeError):
            continue
        for name in names:
            stem, ending = os.path.splitext(name)
            if ending not in (".dist-info", ".egg-info") or "-" not in stem:
                continue
            package, version = stem.split("-")[:2]
            package = package.lower().replace("_", "-").replace(".", "-")
            if package in _PACKAGES:
                found.setdefault(package, version)
    return found


def _of_truststore():
    # type: () -> Tuple[str, str]
    """Return what has truststore's SSLContext, and truststore's name (pip has a copy of it); "" without.

    gevent that patches afterwards puts its own class into ssl: that of urllib3 stays truststore's, and
    gevent's is made from it.
    """
    places = [(each + ".util.ssl_", context) for each, _, context in tls_of_urllib3()]
    places.insert(0, ("ssl", getattr(sys.modules.get("ssl"), "SSLContext", None)))
    for name, context in places:
        # Not isinstance(): see `_kind_of_value`.
        for kind in context.__mro__ if issubclass(type(context), type) else ():
            module = getattr(kind, "__module__", None) or ""
            if "truststore" in module.split("."):
                return name, module[: module.index("truststore") + len("truststore")]
    return "", ""


def _of_eventlet():
    # type: () -> List[str]
    """Return the modules of the standard library that eventlet has patched."""
    patcher = sys.modules.get("eventlet.patcher")
    return sorted(str(name) for name in getattr(patcher, "already_patched", ()))


# Modules that keep what ssl had before gevent patched it: such a class or context stays unpatched.

_TLS_CLIENT, _TLS_SERVER = 16, 17


def keepers(importers):
    # type: (Dict[str, Any]) -> List[Dict[str, Any]]
    """Return one record for each class or context that is kept.

    It has the ``module``, its ``file``, the ``name`` in it, the ``kind`` (``class`` or ``context``),
    whether a ``client`` may use it, and where the module was imported: ``user`` and ``caller``, by
    ``importers``.
    """
    original, current = _both_classes()
    if original is None:
        return []
    found = []
    for name in list(sys.modules):
        if name.partition(".")[0] in ("gevent", "ssl", "_ssl") or _is_ours(name):
            continue
        for variable, value in list(contents(name).items()):
            kind = _kind_of_value(value, original, current)
            if kind:
                user, caller = importers.get(name, (None, None, 0))[:2]
                found.append(
                    {
                        "module": name,
                        "name": variable,
                        "file": contents(name).get("__file__") or "",
                        "kind": kind,
                        "client": kind == "class" or _is_client(value),
                        "user": user,
                        "caller": caller,
                    }
                )
    return found


def is_early_context(value):
    # type: (Any) -> bool
    """Return whether ``value`` is a client's context that is not of gevent's class, as ssl has it now."""
    original, current = _both_classes()
    if original is None or _kind_of_value(value, original, current) != "context":
        return False
    return _is_client(value)


def _both_classes():
    # type: () -> Tuple[Any, Any]
    """Return the SSLContext that ssl had, and the one that it has; None twice where they are the same."""
    ssl, monkey = sys.modules.get("ssl"), sys.modules.get("gevent.monkey")
    original = getattr(monkey, "saved", {}).get("ssl", {}).get("SSLContext")
    current = getattr(ssl, "SSLContext", None)
    if original is None or current is None or original is current:
        return None, None
    return original, current


def _kind_of_value(value, original, current):
    # type: (Any, Any, Any) -> str
    # Not isinstance(): it reads __class__ of proxies, which may not be bound to an object yet.
    kind = value if type(value) is type else type(value)
    if not issubclass(kind, original) or issubclass(kind, current):
        return ""
    return "class" if kind is value else "context"


def _is_client(context):
    # type: (Any) -> bool
    """Return True for a client's context. A server's context checks no host name."""
    return bool(
        context.protocol == _TLS_CLIENT or (context.protocol != _TLS_SERVER and context.check_hostname)
    )


# Who patched and who injected, read in the sources: the process was not recorded.

_PATCH = r"^[^#]*\b(patch_(?:all|socket|ssl|select|thread|time))\(([^)]*)\)"
_INJECT = r"^[^#]*\binject_into_urllib3\("
_INTO_SSL = r"^[^#]*\binject_into_ssl\("


def patches():
    # type: () -> List[Tuple[str, int, Any]]
    """Return file, line and match of each call that patches, in the modules that refer to gevent.monkey.

    Where several modules do, which of them did is a guess: only a recording is certain.
    """
    calls = []  # type: List[Tuple[str, int, Any]]
    for file in _files_that_name("gevent.monkey"):
        calls += _matches(file, _PATCH)
    return calls


def injections(copy, pattern=_INJECT):
    # type: (str, str) -> List[Tuple[str, int, Any]]
    """Return file, line and match of the first call that injects pyOpenSSL into ``copy`` of urllib3.

    With another ``pattern``, of the first call like that in a module that refers to ``copy``.
    """
    for file in _files_that_name(copy):
        hits = _matches(file, pattern)
        if hits:
            return hits[:1]
    return []


def early_import(own_files, keeper="urllib3.util.ssl_"):
    # type: (List[str], str) -> Optional[Tuple[str, int]]
    """Return the line of the user's that imported ``keeper`` of an unpatched ssl; None where none is known.

    It is a line that ran before gevent patched ssl.
    """
    original = getattr(sys.modules.get("gevent.monkey"), "saved", {}).get("ssl", {}).get("SSLContext")
    if original is None or not any(each is original for each in list(contents(keeper).values())):
        return None
    return _Imports(own_files, keeper).first()


# Which import came before the patching, read in the sources, too.

_PATCHING = ("patch_all", "patch_ssl")
# From 3.8 on the modules are in the order in which their imports ended, those within an import before it.
_IN_ORDER = sys.version_info >= (3, 8)


class _Imports(object):
    """The imports of the user's files, in the order in which they ran, as far as the sources show it."""

    def __init__(self, own_files, keeper):
        # type: (List[str], str) -> None
        names = list(sys.modules)
        self._ended = dict((name, number) for number, name in enumerate(names)) if _IN_ORDER else {}
        self._keeper = keeper
        self._files = {}  # type: Dict[str, str]  # by the name of a module
        for name in names:
            path = file_of(name)
            path = absolute(path) if path else ""
            if path in own_files and name != "__mp_main__":
                self._files[name] = path
        self._seen = set()  # type: Set[str]  # files
        self._is_patched = False
        # Where something else imported gevent's ssl, nothing says when the patching was.
        start, end = (self._ended.get(each, -1) for each in (keeper, "gevent.ssl"))
        self._span = (start, end if end > start else len(names))

    def first(self):
        # type: () -> Optional[Tuple[str, int]]
        """Return file and line of the first import before the patching that led to the keeper."""
        if "__main__" in self._files:
            found = self._within("__main__")
            if found or (self._is_patched and not _IN_ORDER):
                return found
        was_patched = self._is_patched
        for name in [each for each in list(sys.modules) if each in self._files]:
            if self._files[name] in self._seen:
                continue
            self._is_patched = False
            found = self._within(name)
            # What neither ended before the patching nor led to it may have come after it.
            is_before = _IN_ORDER and self._ended.get(name, 0) < self._span[1]
            if found and (is_before or (self._is_patched and not was_patched)):
                return found
        return None

    def _within(self, name):
        # type: (str) -> Optional[Tuple[str, int]]
        """Return the first such import in the file of a module, and in those that it imports.

        What only ended after the keeper shows that something else had loaded the keeper before.
        """
        file, package = self._files[name], _package_of(name)
        self._seen.add(file)
        inside = None  # in a function, which may have been called
        for line, names, is_inside in _steps(file, package):
            if names is None:
                self._is_patched = True
                break
            for each in () if is_inside else names:
                if self._files.get(each) and self._files[each] not in self._seen:
                    found = self._within(each)
                    if found or self._is_patched:
                        return found or inside
            if "grequests" in names and not is_inside:
                self._is_patched = True
                break
            # The packages that the file is in are not loaded yet.
            loaded = [each for each in names if each in sys.modules and not _is_in(package, each)]
            if self._may_lead(loaded):
                leads = self._leads(loaded)
                if not is_inside:
                    return (file, line) if leads else inside
                inside = inside or ((file, line) if leads else None)
        return inside

    def _may_lead(self, loaded):
        # type: (List[str]) -> bool
        """Return whether the import of these modules ended after the keeper's, before ssl was patched."""
        if not _IN_ORDER:
            return self._leads(loaded)
        # The import of a name in a package ends with that of the package, if that came first.
        return bool(loaded) and self._span[0] <= max(self._ended[each] for each in loaded) < self._span[1]

    def _leads(self, loaded):
        # type: (List[str]) -> bool
        """Return whether these modules, or those that they refer to, refer to the keeper's package."""
        goal = self._keeper.partition(".")[0]
        roots = [self._unit_of(each) for each in loaded]
        for root in roots:
            if root == goal:
                return True
            is_own = root in self._files
            inside = [root] if is_own else [each for each in list(sys.modules) if _is_in(each, root)]
            path = ([file_of(each) for each in inside if file_of(each)] or [""])[0]  # a namespace has none
            if root == "__main__" or not path or kind_of_file(path) in ("library", "gevent"):
                continue
            found = set(self._unit_of(origin) for each in inside for origin in _origins(each))
            roots += sorted(found.difference(roots))
        return False

    def _unit_of(self, name):
        # type: (str) -> str
        """Return the package of a module; the module alone where it is the user's."""
        return name if name in self._files else name.partition(".")[0]


def _is_in(name, package):
    # type: (str, str) -> bool
    return (name + ".").startswith(package + ".")


def _package_of(name):
    # type: (str) -> str
    """Return the package that the relative imports of a module are in."""
    found = contents(name).get("__package__")
    if isinstance(found, str):
        return found
    return name if "__path__" in contents(name) else name.rpartition(".")[0]


def _steps(file, package):
    # type: (str, str) -> List[Step]
    """Return the steps of a source, which is in ``package``; none if it cannot be read."""
    import ast  # not above: see `_matches`
    import io

    try:
        with io.open(file, "rb") as source:
            tree = ast.parse(source.read())
        return _Source(tree, package).steps
    except (IOError, OSError, SyntaxError, ValueError, RuntimeError, MemoryError):
        return []  # also where an expression is too deep


class _Source(object):
    """The ``steps`` of a source: line, imported names, whether in a function.

    The names are None where ssl is patched. What is imported for a type checker alone is left out.
    """

    def __init__(self, tree, package):
        # type: (Any, str) -> None
        self.steps = []  # type: List[Step]
        self._package = package
        self._importing = []  # type: List[str]  # functions that import what they are given
        self._patching = list(_PATCHING)
        import ast

        for each in ast.walk(tree):
            if type(each).__name__ in _FUNCTIONS:
                called = [_called(inner) for inner in ast.walk(each) if isinstance(inner, ast.Call)]
                name = getattr(each, "name", "")
                self._importing += [name] if any("import" in each for each in called) else []
                self._patching += [name] if any(each in _PATCHING for each in called) else []
        self._look(tree, False, ast.iter_child_nodes)

    def _look(self, node, is_inside, parts):
        # type: (Any, bool, Callable[[Any], Any]) -> None
        kind = type(node).__name__
        for each in node.orelse if kind == "If" and _is_for_types(node.test) else parts(node):
            self._look(each, is_inside or kind in _MAY_NOT_RUN, parts)
        if kind == "Import":
            self.steps += [(node.lineno, _prefixes(each.name), is_inside) for each in node.names]
        elif kind == "ImportFrom":
            base = _absolute_name(node, self._package)
            names = _prefixes(base) + [base + "." + each.name for each in node.names]
            self.steps.append((node.lineno, names, is_inside))
        elif kind == "Call":
            self._look_at_call(node, is_inside)

    def _look_at_call(self, node, is_inside):
        # type: (Any, bool) -> None
        name, given = _called(node), _text_of(node.args[0]) if node.args else ""
        if name in self._patching:
            if not is_inside and _is_of_ssl(node):
                self.steps.append((node.lineno, None, False))
        elif given and ("import" in name or name in self._importing):
            self.steps.append((node.lineno, _prefixes(given), is_inside))


_FUNCTIONS = ("FunctionDef", "AsyncFunctionDef")
_MAY_NOT_RUN = _FUNCTIONS + ("Lambda", "ExceptHandler")


def _is_for_types(test):
    # type: (Any) -> bool
    return "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", ""))


def _absolute_name(node, package):
    # type: (Any, str) -> str
    """Return the module that a ``from`` statement names, in a file of ``package``."""
    base = package.split(".")
    if node.level:
        base = base[: len(base) - node.level + 1]
        return ".".join(filter(None, base + [node.module or ""]))
    return node.module or ""


def _called(node):
    # type: (Any) -> str
    """Return the last name of what is called; "" without one."""
    return getattr(node.func, "id", None) or getattr(node.func, "attr", None) or ""


def _text_of(node):
    # type: (Any) -> str
    """Return the text of a literal; "" for anything else."""
    text = getattr(node, "value", None) if hasattr(node, "value") else getattr(node, "s", None)
    return text if isinstance(text, str) else ""


def _is_of_ssl(node):
    # type: (Any) -> bool
    """Return False for a call that leaves ssl out."""
    for each in node.keywords:
        value = getattr(each.value, "value", getattr(each.value, "id", True))
        if each.arg == "ssl" and value in (False, "False"):
            return False
    return True


def _prefixes(name):
    # type: (str) -> List[str]
    """Return ``name`` and the packages that it is in, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:number]) for number in range(1, len(parts) + 1) if parts[0]]


def _files_that_name(name):
    # type: (str) -> List[str]
    """Return the sources of the modules that refer to ``name`` or to something in it, the user's first."""
    found = []
    for own in list(sys.modules):
        file = file_of(own)
        if not file.endswith(".py") or own.split(".")[0] == name.split(".")[0] or _is_ours(own):
            continue
        if _refers(own, name):
            found.append(file)
    return sorted(found, key=lambda file: kind_of_file(file) != "user")


def _refers(own, name):
    # type: (str, str) -> bool
    """Return whether the module ``own`` has ``name``, or something that is defined there."""
    origins = _origins(own)
    return name.split(".")[0] in origins or any(_is_in(each, name) for each in origins)


def _origins(own):
    # type: (str) -> Set[str]
    """Return the modules that the module ``own`` has, or has something of."""
    found = set()
    for value in list(contents(own).values()):
        kind = type(value)  # not isinstance(), as above
        if issubclass(kind, type(sys)):
            found.add(str(object.__getattribute__(value, "__dict__").get("__name__")))
        elif issubclass(kind, (type(_refers), type)):
            found.add(str(getattr(value, "__module__", "")))
    return found


def _matches(file, pattern):
    # type: (str, str) -> List[Tuple[str, int, Any]]
    """Return file, line and match of each line of a source that matches; none if it cannot be read."""
    # Not above: the agent of the diagnostics has this module in processes that have not imported them yet.
    import io
    import re

    search = re.compile(pattern).match
    try:
        with io.open(file, encoding="utf-8", errors="replace") as lines:
            hits = [(number, search(line)) for number, line in enumerate(lines, 1)]
    except (IOError, OSError):
        return []
    return [(file, number, hit) for number, hit in hits if hit]


# The inspection

_CLIENTS = ("requests", "urllib3", "botocore")  # packages whose waiting gevent makes concurrent
_DIRECT = ("urllib3", "requests.packages.urllib3")


class Cause(object):
    """Why HTTPS will not be concurrent.

    ``code``: as in the table of causes of the diagnostics; ``where``: file:line, "" where it is not known;
    ``evidence``: what was seen, a line each.
    """

    def __init__(self, code, summary, where, evidence):
        # type: (str, str, str, List[str]) -> None
        self.code = code
        self.summary = summary
        self.where = where
        self.evidence = evidence

    def __repr__(self):
        # type: () -> str
        return (self.code + " " + self.where).strip()


class Inspection(object):
    """The ``facts`` of this process, and the ``causes`` that will serialize or break HTTPS in it."""

    def __init__(self, facts, causes):
        # type: (Dict[str, Any], List[Cause]) -> None
        self.facts = facts
        self.causes = causes

    def __repr__(self):
        # type: () -> str
        return "Inspection(%s)" % ", ".join(map(repr, self.causes))


def inspect():
    # type: () -> Inspection
    """Return facts and static causes of this process, without sending or changing anything.

    A static cause is a state that is known to serialize or break HTTPS under gevent, whether or not a
    request is ever made. A process that does not use gevent has none.
    """
    seen = facts()
    return Inspection(seen, _causes(seen) if "gevent" in sys.modules else [])


def exit_if_serial(log=None):
    # type: (Optional[Callable[[str], Any]]) -> None
    """End this process with status 3 if HTTPS would be serialized in it, after a line for each cause.

    ``log`` is called with each line; without it they go to standard error.
    """
    causes = inspect().causes
    for cause in causes:
        at = " at " + cause.where if cause.where else ""
        line = "HTTPS would be serialized here: %s%s: %s" % (cause.code, at, cause.summary)
        if log is not None:
            log(line)
        elif sys.stderr is not None:
            sys.stderr.write(line + "\n")
    if causes:
        raise SystemExit(SERIAL)


def _causes(seen):
    # type: (Dict[str, Any]) -> List[Cause]
    is_patched, copies = seen["patched"], seen["injected_copies"]
    if not any(is_patched.get(name) for name in ("socket", "ssl", "select", "time")):
        text = "socket, ssl, select and time are the originals"
        return [Cause("not-patched", "gevent has patched nothing", "", [text])]
    causes = []
    if copies:
        causes += _of_pyopenssl(seen)
    else:
        is_theirs = seen["truststore_injected"]  # it has replaced what gevent patched
        if not is_patched.get("ssl", True) and is_patched.get("socket") and not is_theirs:
            text, seen_in = "sockets are patched, ssl is not", "ssl.SSLContext is the original"
            causes.append(Cause("ssl-unpatched", text, _patcher(), [seen_in]))
        if not is_patched.get("socket", True):
            text, seen_in = "sockets are not patched", "socket.socket is the original"
            causes.append(Cause("sockets-unpatched", text, _patcher(), [seen_in]))
    if seen["truststore_injected"]:
        text = "truststore's SSLContext does not work with gevent's"
        seen_in, truststore = _of_truststore()
        seen_in += ".SSLContext is truststore's"
        causes.append(Cause("truststore", text, _place(injections(truststore, _INTO_SSL)), [seen_in]))
    elif is_patched.get("ssl"):
        causes += _of_keeper(seen)
    return causes


def _of_pyopenssl(seen):
    # type: (Dict[str, Any]) -> List[Cause]
    copies, causes = seen["injected_copies"], []
    if not seen["patched"].get("select", True):
        code = "gevent-openssl-python3" if seen["gevent_openssl"] else "pyopenssl-unpatched-select"
        if not any(copy in _DIRECT for copy in copies):
            code = "pyopenssl-vendored-copy"
        text = "pyOpenSSL is in %s, and select is not patched" % ", ".join(copies)
        hits = [hit for copy in copies for hit in injections(copy)]
        causes.append(Cause(code, text, _place(hits), [text]))
    if not seen["patched"].get("socket", True):
        text = "pyOpenSSL reads from sockets that block"
        causes.append(Cause("pyopenssl-unpatched-sockets", text, "", ["socket is the original"]))
    return causes


def _of_keeper(seen):
    # type: (Dict[str, Any]) -> List[Cause]
    keeper = _keeper()
    if keeper is None:
        return []
    code = "context-before-patching" if keeper["kind"] == "context" else "patched-too-late"
    text = "%s.%s is what ssl had before gevent patched it" % (keeper["module"], keeper["name"])
    return [Cause(code, "ssl was in use before gevent patched it", _keeping(keeper, seen), [text])]


def _patcher():
    # type: () -> str
    return _place(patches())


def _place(hits):
    # type: (List[Tuple[str, int, Any]]) -> str
    return "%s:%d" % hits[0][:2] if hits else ""


def _keeper():
    # type: () -> Optional[Dict[str, Any]]
    """Return what keeps the unpatched SSLContext and uses it where gevent should make it concurrent.

    A module that merely has a name for the class (aiohttp does) does not count, nor does a server's
    context.
    """
    found = [each for each in keepers({}) if each["client"]]
    for each in found:
        if each["kind"] == "class" and each["module"].endswith(".util.ssl_"):
            return each
    for each in found:
        own = kind_of_file(each["file"]) == "user"
        if each["kind"] == "context" and (own or each["module"].partition(".")[0] in _CLIENTS):
            return each
    return None


def _keeping(keeper, seen):
    # type: (Dict[str, Any], Dict[str, Any]) -> str
    """Return the line that led to ``keeper``; its module where that is not known."""
    if keeper["kind"] == "context":
        pattern = r"^\s*" + keeper["name"] + r"\b.*="  # a name that is no identifier is in no source
        spot = _place(_matches(file_of(keeper["module"]), pattern)) if _is_name(keeper["name"]) else ""
    else:
        early = early_import(seen["own_files"], keeper["module"])
        spot = "%s:%d" % early if early else ""
    return spot or str(keeper["module"])


def _is_name(text):
    # type: (str) -> bool
    return text.replace("_", "a").isalnum()
