"""Record how the process is set up: what imports, patches, injects, and creates TLS contexts.

Each first import is seen with the stack that led to it. For the few modules in ``_change`` the calls of
some functions are recorded once the module is complete. One counter numbers all events, so that "before"
and "after" can be decided.
"""

import sys

from . import frames, harmless, https_inspection, imports, wrapping

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
        # Where the first TLS connection was made that no socket carries, as those of asyncio.
        self.off_sockets = None  # type: Optional[frames.Spot]
        self.main = ""  # the user's file that was started, also where runpy runs another one as __main__
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


@harmless.made
def _imported(name, frame):
    # type: (str, Optional[FrameType]) -> None
    _watch_replacements(frame)
    record.main = record.main or frames.main_file(frame)
    if name not in record.importers:
        record.importers[name] = (frames.user(frame), frames.caller(frame), len(record.importers))
    if (name in _FIRST or name.endswith(_ENDINGS)) and name not in record.imports:
        amid = _is_amid_patching(frame)
        record.imports[name] = frames.event(frame, at=record.next(), amid=amid)
        if amid:
            record.patches[-1]["at"] = record.next()


def _is_amid_patching(frame):
    # type: (Optional[FrameType]) -> bool
    """Return whether an object that gevent looks at while it patches imports in ``frame``, before ssl is
    patched.

    gevent asks all objects for their class, and one that is a proxy may load then what it stands for.
    """
    if not record.patches or https_inspection.is_gevents("ssl", "SSLContext"):
        return False
    imports = False  # other code than gevent's own
    while frame is not None:
        kind = frames.kind(frame.f_code)
        if kind == "gevent" and not imports:
            return False
        if kind == "gevent" and frame.f_code.co_name.lstrip("_").startswith("patch"):
            return True
        imports = imports or kind in ("user", "package")
        frame = frame.f_back
    return False


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
    if "wrap_bio" in vars(context):
        wrapping.wrap(context, "wrap_bio", _note_off_sockets)
    _note_wrapping(module)


def _note_off_sockets(frame, arguments):
    # type: (Optional[FrameType], Dict[str, Any]) -> None
    """Record where a client makes TLS over memory: an event loop carries it, which waits by itself."""
    if record.off_sockets is None and not arguments.get("server_side"):
        record.off_sockets = frames.user(frame) or frames.caller(frame)


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
    imports.observe(_change, _imported)


def look():
    # type: () -> None
    """Check once more whether something was restored, at the end of the set-up."""
    _watch_replacements(sys._getframe(1))
