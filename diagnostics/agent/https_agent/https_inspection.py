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
    from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Tuple

    Spot = Tuple[str, int, str]  # file, line, function

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
    if any(each in _PACKAGE_FOLDERS or each.endswith(_PACKED) for each in parts[:-1]):
        return "gevent" if "gevent" in parts or "greenlet" in parts else "package"
    if path.startswith(_LIBRARY + os.sep):
        return "library"
    if path.startswith(os.path.join(sys.prefix, "bin") + os.sep):
        return "package"  # a console script: it only calls what is installed
    return "user"


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
        "truststore_injected": _truststore(),
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


def _truststore():
    # type: () -> bool
    context = getattr(sys.modules.get("ssl"), "SSLContext", None)
    return "truststore" in (getattr(context, "__module__", None) or "").split(".")  # pip has a copy of it


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
    ssl, monkey = sys.modules.get("ssl"), sys.modules.get("gevent.monkey")
    original = getattr(monkey, "saved", {}).get("ssl", {}).get("SSLContext")
    current = getattr(ssl, "SSLContext", None)
    if original is None or current is None or original is current:
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
_INJECT = r"^[^#]*\b(inject_into_(?:urllib3|ssl))\("
_IMPORT = r"^\s*(?:from|import)\s+(?:requests|urllib3|grequests|boto3|botocore)\b"


def patches():
    # type: () -> List[Tuple[str, int, Any]]
    """Return file, line and match of each call that patches, in the modules that refer to gevent.monkey.

    Where several modules do, which of them did is a guess: only a recording is certain.
    """
    calls = []  # type: List[Tuple[str, int, Any]]
    for file in _files_that_name("gevent.monkey"):
        calls += _matches(file, _PATCH)
    return calls


def injections(copy):
    # type: (str) -> List[Tuple[str, int, Any]]
    """Return file, line and match of the first call that injects pyOpenSSL into ``copy`` of urllib3."""
    for file in _files_that_name(copy):
        hits = _matches(file, _INJECT)
        if hits:
            return hits[:1]
    return []


def early_import(own_files):
    # type: (List[str]) -> Optional[Tuple[str, int]]
    """Return the line of the user's that imported what bound ssl before it was patched; None without."""
    original = getattr(sys.modules.get("gevent.monkey"), "saved", {}).get("ssl", {}).get("SSLContext")
    tls = sys.modules.get("urllib3.util.ssl_")
    if original is not None and getattr(tls, "SSLContext", None) is original:
        for file in own_files:
            for _, line, _ in _matches(file, _IMPORT)[:1]:
                return file, line
    return None


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
    for value in list(contents(own).values()):
        kind = type(value)  # not isinstance(), as above
        if issubclass(kind, type(sys)):
            origin = object.__getattribute__(value, "__dict__").get("__name__")
            if origin == name.split(".")[0]:
                return True
        elif issubclass(kind, (type(_refers), type)):
            origin = getattr(value, "__module__", "")
        else:
            continue
        if (str(origin) + ".").startswith(name + "."):
            return True
    return False


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
        if not is_patched.get("ssl", True) and is_patched.get("socket"):
            text, seen_in = "sockets are patched, ssl is not", "ssl.SSLContext is the original"
            causes.append(Cause("ssl-unpatched", text, _patcher(), [seen_in]))
        if not is_patched.get("socket", True):
            text, seen_in = "sockets are not patched", "socket.socket is the original"
            causes.append(Cause("sockets-unpatched", text, _patcher(), [seen_in]))
    if seen["truststore_injected"]:
        text = "truststore's SSLContext does not work with gevent's"
        causes.append(Cause("truststore", text, "", ["ssl.SSLContext is truststore's"]))
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
        early = early_import(seen["own_files"])
        spot = "%s:%d" % early if early else ""
    return spot or str(keeper["module"])


def _is_name(text):
    # type: (str) -> bool
    return text.replace("_", "a").isalnum()
