"""Record how the process is set up: what imports, patches, injects, and creates TLS contexts.

A finder at the front of ``sys.meta_path`` sees each first import with the stack that led to it. It finds
nothing itself. For the few modules in ``_change`` it records the calls of some functions once the module is
complete. One counter numbers all events, so that "before" and "after" can be decided.
"""

import sys

from . import frames, harmless, https_inspection, wrapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, ModuleType
    from typing import Any, Callable, Dict, List, Optional, Tuple

_FIRST = (
    "ssl",
    "_ssl",
    "gevent",
    "gevent.monkey",
    "requests",
    "urllib3",
    "grequests",
    "OpenSSL",
    "truststore",
)
_ENDINGS = (".urllib3", ".requests", ".contrib.pyopenssl", ".ssl_")
_PATCHERS = ("gevent_openssl", "eventlet.patcher")
_POOLS = {"concurrent.futures.thread": "ThreadPoolExecutor", "multiprocessing.pool": "ThreadPool"}
# What may let only some requests through: by the end of the name of the module.
_CLIENTS = {
    "requests.adapters": ("HTTPAdapter",),
    "urllib3.poolmanager": ("PoolManager",),
    "urllib3.connectionpool": ("HTTPConnectionPool",),
    "httpx._client": ("Client",),
    "httpx2._client": ("Client",),
    "geventhttpclient.client": ("HTTPClient",),
}
_MAX_CLIENTS = 10000
_HTTPS = 443
# Classes of which others can be made; those of TLS in TLS, or through a proxy, are called otherwise.
_SOCKETS = ("socket", "_socketobject")
_MAX_EVENTS = 50  # of one kind


class _Old:
    """Of Python 2, whose old classes have a type of their own."""


_CLASSES = (type, type(_Old))


class Record(object):
    """Everything that was recorded: lists of events, see ``frames.event``."""

    def __init__(self):
        # type: () -> None
        self.serial = 0
        self.imports = {}  # type: Dict[str, Dict[str, Any]]
        # Of each module, who imported it: the user's line, a package's line; and when.
        self.importers = {}  # type: Dict[str, Tuple[Any, Any, int]]
        self.patches = []  # type: List[Dict[str, Any]]
        self.injections = []  # type: List[Dict[str, Any]]
        self.contexts = []  # type: List[Dict[str, Any]]
        self.connections = []  # type: List[Dict[str, Any]]
        self.made = []  # type: List[Dict[str, Any]]  # pools of threads, until something is patched
        self.clients = {}  # type: Dict[int, Any]  # where the user made each client, by its number
        self.early = []  # type: List[str]  # imported before the recording began
        self.replaced = []  # type: List[Dict[str, Any]]
        self.on_import = {}  # type: Dict[str, Callable[[ModuleType], None]]
        self.besides = {}  # type: Dict[str, Callable[[ModuleType], None]]  # what changes a module, too
        # Called with what wraps the socket, and its class, where it is known how to make others like it.
        self.on_connection = None  # type: Optional[Callable[[Optional[FrameType], Any], None]]
        # Called for each request on a connection that has had one before.
        self.on_request = None  # type: Optional[Callable[[Optional[FrameType]], None]]
        self.tried = False  # an HTTPS connection of http.client, urllib3, pyOpenSSL
        self.reached = None  # type: Any  # the line of a module that leads to the first request
        self.instead = {}  # type: Dict[str, Callable[[Any], Any]]  # a remedy's version of an injection

    def next(self):
        # type: () -> int
        self.serial += 1
        return self.serial

    def note(self, events, frame, **fields):
        # type: (List[Dict[str, Any]], Optional[FrameType], **Any) -> None
        """Add an event that happens in ``frame`` to ``events``, up to ``_MAX_EVENTS`` of them."""
        if len(events) < _MAX_EVENTS:
            events.append(frames.event(frame, at=self.next(), **fields))

    def seen(self):
        # type: () -> Dict[str, Any]
        """Return the recording as it is reported."""
        return {
            "imports": self.imports,
            "patches": self.patches,
            "injections": self.injections,
            "contexts": self.contexts,
            "connections": self.connections,
            "made": self.made,
            "early": self.early,
            "replaced": self.replaced,
            "reached": self.reached,
            "keepers": https_inspection.keepers(self.importers),
            "faults": harmless.faults,
        }


record = Record()


class _Finder(object):
    """An import hook that only observes, for the import protocols of Python 2 and of Python 3."""

    def __init__(self):
        # type: () -> None
        self._within = set()  # type: set[str]

    def find_spec(self, name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        if not _only_asks(sys._getframe().f_back):
            _imported(name, sys._getframe().f_back)
        change = _change(name)
        if change is None or name in self._within:
            return None
        self._within.add(name)
        try:
            return _then(self, name, path, target, change)
        finally:
            self._within.discard(name)

    if sys.version_info[0] == 2:

        def find_module(self, name, path=None):
            # type: (str, Any) -> Any
            _imported(name, sys._getframe().f_back)  # no frame where the interpreter itself imports: runpy
            change = _change(name)
            return None if change is None else _Loader.of(name, path, change)


def _only_asks(frame):
    # type: (Optional[FrameType]) -> bool
    """Return whether the program only asks for a spec, as `importlib.util.find_spec` does: no import."""
    while frame is not None:
        if frame.f_code.co_name.startswith("_find_and_load") or frames.kind(frame.f_code) == "agent":
            return False
        if frames.kind(frame.f_code) in ("user", "package"):
            return True
        frame = frame.f_back
    return False


@harmless.made
def _imported(name, frame):
    # type: (str, Optional[FrameType]) -> None
    _watch_replacements(frame)
    if name not in record.importers:
        record.importers[name] = (frames.user(frame), frames.caller(frame), len(record.importers))
    if (name in _FIRST or name.endswith(_ENDINGS)) and name not in record.imports:
        record.imports[name] = frames.event(frame, at=record.next())


def _then(finder, name, path, target, change):
    # type: (Any, str, Any, Any, Callable[[ModuleType], None]) -> Any
    """Return the spec that the other finders give, with ``change`` called after the module's code."""
    for other in sys.meta_path:
        find = getattr(other, "find_spec", None)
        if other is finder or find is None:
            continue
        spec = find(name, path, target)
        if spec is None:
            continue
        execute = getattr(spec.loader, "exec_module", None)
        if execute is not None and type(spec.loader) is not type:

            def exec_module(module, execute=execute, loader=spec.loader):
                # type: (ModuleType, Any, Any) -> None
                loader.__dict__.pop("exec_module", None)
                execute(module)
                harmless.made(change)(module)

            try:
                spec.loader.exec_module = exec_module
            except AttributeError:
                pass  # a loader without a dictionary: the module is not changed
        return spec
    return None


class _Loader(object):
    """A loader for Python 2 that imports with ``imp``, then calls the change.

    Everything else is pkgutil's: runpy, for example, gets the code object from it.
    """

    def __init__(self, name, found, change):
        # type: (str, Any, Callable[[ModuleType], None]) -> None
        import pkgutil

        source, path, description = found
        plain = pkgutil.ImpLoader(name, source, path, description)  # type: Any
        self._plain = plain
        self._change = change

    def __getattr__(self, name):
        # type: (str) -> Any
        return getattr(self._plain, name)

    @classmethod
    def of(cls, name, path, change):
        # type: (str, Any, Callable[[ModuleType], None]) -> Any
        import imp

        try:
            return cls(name, imp.find_module(name.rpartition(".")[2], path), change)
        except ImportError:
            return None

    def load_module(self, name):
        # type: (str) -> Any
        if name in sys.modules:
            return sys.modules[name]
        module = self._plain.load_module(name)
        harmless.made(self._change)(module)
        return module


def _change(name):
    # type: (str) -> Optional[Callable[[ModuleType], None]]
    """Return the function that changes module ``name`` when it is complete; None if it is not changed."""
    first, second = record.on_import.get(name) or _noting(name), record.besides.get(name)
    if first is None or second is None:
        return first or second

    def both(module):
        # type: (ModuleType) -> None
        first(module)
        second(module)

    return both


def _noting(name):
    # type: (str) -> Optional[Callable[[ModuleType], None]]
    if name in ("gevent.monkey", "gevent.monkey.api"):
        return _note_patching
    if name == "ssl":
        return _note_contexts
    if name in ("gevent.ssl", "gevent._ssl3", "gevent._sslgte279"):
        return _note_wrapping
    if name in ("http.client", "httplib") or name.endswith(".connection"):
        return _note_connecting
    if name in _KEEPERS:
        return _note_requests
    if name == "OpenSSL.SSL":
        return _note_pyopenssl
    if name in _POOLS:
        return _note_pools
    if name in _CLIENTS:
        return _note_clients
    last = name.rpartition(".")[2].lower()
    if "pyopenssl" in last or "truststore" in name or name.startswith(_PATCHERS):
        return _note_injecting
    return None


def _note_patching(module):
    # type: (ModuleType) -> None
    """Record each ``patch_*`` call that another one does not make, with its non-default arguments."""
    for name in [each for each in vars(module) if each.startswith("patch_")]:
        function = vars(module)[name]

        def before(frame, arguments, name=name, function=function):
            # type: (Optional[FrameType], Dict[str, Any], str, Any) -> None
            if not _is_patching(frame):
                given = wrapping.differing(function, arguments)
                shown = dict((key, repr(value)) for key, value in given.items())
                record.note(record.patches, frame, function=name, arguments=shown)

        wrapping.wrap(module, name, before)


def _is_patching(frame):
    # type: (Optional[FrameType]) -> bool
    """Return whether gevent itself makes the call while it patches.

    ``main`` of ``python -m gevent.monkey`` does not count.
    """
    return frame is not None and frames.kind(frame.f_code) == "gevent" and frame.f_code.co_name != "main"


def _note_injecting(module):
    # type: (ModuleType) -> None
    for name in ("inject_into_urllib3", "inject_into_ssl", "monkey_patch"):

        def before(frame, arguments, name=name):
            # type: (Optional[FrameType], Any, str) -> None
            record.note(record.injections, frame, module=_name_of(vars(module)), function=name)

        if name in record.instead and name in vars(module):
            setattr(module, name, record.instead[name](vars(module)[name]))
        wrapping.wrap(module, name, before)


def _note_pools(module):
    # type: (ModuleType) -> None
    """Record the pools of threads that are made before anything is patched: they wait in real locks."""
    name = _POOLS[module.__name__]

    def before(frame, arguments):
        # type: (Optional[FrameType], Any) -> None
        if not record.patches:
            record.note(record.made, frame, cls=name)

    wrapping.wrap(getattr(module, name), "__init__", before)


def _note_clients(module):
    # type: (ModuleType) -> None
    """Note where the user makes clients; a number is given to another one after the end of the first."""

    def before(frame, arguments):
        # type: (Optional[FrameType], Dict[str, Any]) -> None
        if frame is not None and frame.f_code.co_name == "_new_pool":
            return  # made for a request
        user = frames.user(frame)
        if user is not None and len(record.clients) < _MAX_CLIENTS:
            record.clients[id(arguments.get("self"))] = user

    for name in _CLIENTS[module.__name__]:
        wrapping.wrap(getattr(module, name), "__init__", before)


def _note_contexts(module):
    # type: (ModuleType) -> None
    """Record the standard library's contexts, and what they connect."""
    context = getattr(module, "SSLContext", None)
    if context is None:
        return

    def before(frame, arguments):
        # type: (Optional[FrameType], Any) -> None
        made = arguments.get("cls")
        if not (getattr(made, "__module__", "") or "").startswith("gevent"):
            record.note(
                record.contexts,
                frame,
                cls="%s.%s" % (getattr(made, "__module__", ""), getattr(made, "__name__", "")),
            )

    if "__new__" in vars(context):
        wrapping.wrap(context, "__new__", before, static=True)
    _note_wrapping(module)


def _note_wrapping(module):
    # type: (ModuleType) -> None
    context = getattr(module, "SSLContext", None)
    if context is not None and "wrap_socket" in vars(context):
        wrapping.wrap(
            context, "wrap_socket", lambda frame, arguments: _connecting(frame, module, arguments)
        )


def _note_connecting(module):
    # type: (ModuleType) -> None
    """Record attempts to open an HTTPS connection, whether or not a server accepts them."""
    for name, kind in list(vars(module).items()):
        # By its type: an object that loads itself when it is looked at, such as Django's, may fail.
        if "HTTPS" in name and issubclass(type(kind), _CLASSES) and "connect" in vars(kind):

            def before(frame, arguments):
                # type: (Optional[FrameType], Any) -> None
                _trying(frame)

            wrapping.wrap(kind, "connect", before)
    if module.__name__ in _KEEPERS:
        _note_requests(module)


def _note_requests(module):
    # type: (ModuleType) -> None
    """Record the requests that clients make on HTTPS connections that they have kept."""
    cls, name, is_kept = _KEEPERS[module.__name__]

    def before(frame, arguments):
        # type: (Optional[FrameType], Dict[str, Any]) -> None
        if record.on_request is not None and is_kept(arguments["self"]):
            record.on_request(frame)

    if hasattr(module, cls):  # it has another name in other versions
        wrapping.wrap(getattr(module, cls), name, before)


def _is_kept(own):
    # type: (Any) -> bool
    # The last response is forgotten at the next request, or when the connection is closed.
    kept = own.sock is not None and own._HTTPConnection__response is not None
    return bool(kept and own.default_port == _HTTPS)


# By module: the class and the method that all requests call, and whether its object has a connection.
_PLAIN = ("HTTPConnection", "putrequest", _is_kept)
_HTTPCORE = (
    "HTTP11Connection",
    "handle_request",
    lambda own: getattr(own, "_request_count", 0) and own._origin.scheme == b"https",
)  # type: Tuple[str, str, Callable[[Any], Any]]
_KEEPERS = {
    "httplib": _PLAIN,
    "http.client": _PLAIN,
    "httpcore._sync.http11": _HTTPCORE,
    "httpcore2._sync.http11": _HTTPCORE,
    "geventhttpclient.connectionpool": (
        "ConnectionPool",
        "get_socket",
        lambda own: (
            hasattr(own, "ssl_context") and own._semaphore.counter > 0 and not own._socket_queue.empty()
        ),
    ),
}  # type: Dict[str, Tuple[str, str, Callable[[Any], Any]]]


def _note_pyopenssl(module):
    # type: (ModuleType) -> None
    """Record pyOpenSSL's contexts and connections, whichever module makes them."""
    wrapping.wrap(
        module.Context,
        "__init__",
        lambda frame, arguments: record.note(record.contexts, frame, cls="OpenSSL.SSL.Context"),
    )
    wrapping.wrap(
        module.Connection, "__init__", lambda frame, arguments: _connecting(frame, module, arguments)
    )


def _connecting(frame, module, arguments):
    # type: (Optional[FrameType], ModuleType, Dict[str, Any]) -> None
    if arguments.get("server_side"):
        return
    name = "ssl.SSLSocket"
    if module.__name__ == "OpenSSL.SSL":
        name = "OpenSSL.SSL.Connection"
        outer = frame  # type: Optional[FrameType]
        for _ in range(3):
            if outer is not None and "WrappedSocket" in outer.f_globals:
                name = "%s.WrappedSocket" % _name_of(outer.f_globals)
                break
            outer = outer.f_back if outer is not None else None
    elif module.__name__.startswith("gevent"):
        name = "gevent.ssl.SSLSocket"
    if len(record.connections) < _MAX_EVENTS:
        record.connections.append(frames.event(frame, at=record.next(), cls=name))
    kind = type(arguments.get("sock"))
    _trying(frame, (arguments.get("self"), kind) if kind.__name__ in _SOCKETS else None)


def _name_of(contents):
    # type: (Dict[str, Any]) -> str
    """Return a name under which a module with these contents can be imported.

    A vendored copy may have been given another name than the one that it has itself.
    """
    own = str(contents.get("__name__"))
    if https_inspection.contents(own) is contents:
        return own
    for name in list(sys.modules):
        if https_inspection.contents(name) is contents:
            return name
    return own


def _trying(frame, wrapped=None):
    # type: (Optional[FrameType], Any) -> None
    record.tried = True
    if record.on_connection is not None:
        record.on_connection(frame, wrapped)


# Functions that gevent replaces and that other code may restore. They are compared at each import, since
# an assignment to a module's attribute cannot be observed when it happens.
_KEPT = (("select", "select"), ("select", "poll"), ("time", "sleep"), ("socket", "socket"))
_last = {}  # type: Dict[str, bool]


def _watch_replacements(frame):
    # type: (Optional[FrameType]) -> None
    if "gevent.monkey" not in sys.modules:
        return
    for name, attribute in _KEPT:
        value = getattr(sys.modules.get(name), attribute, None)
        ours = (getattr(value, "__module__", None) or "").startswith("gevent")
        key = name + "." + attribute
        if _last.get(key) and not ours:
            record.note(record.replaced, frame, name=key)
        _last[key] = ours


def install():
    # type: () -> None
    """Start to record."""
    record.early = [name for name in _FIRST if name in sys.modules]
    for name in list(sys.modules):
        module = sys.modules[name]
        change = _change(name)
        if change is not None and module is not None:
            change(module)
    sys.meta_path.insert(0, _Finder())


def look():
    # type: () -> None
    """Check once more whether something was restored, at the end of the set-up."""
    _watch_replacements(sys._getframe(1))
