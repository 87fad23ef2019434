"""Make clients that are like the application's, for the probe's URL: of its session, manager or pool.

A client may be tied to the application's host: by an adapter that is mounted at a prefix, by a pool of one
host, by a base URL. What serves that host serves the probe's URL in the copy. The copies share the locks,
hooks and contexts of the originals, and leave the originals and their connections as they are.
"""

import copy
import functools
import itertools
import re
from types import FunctionType

from . import attributes, frames, sharing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple

    Fetch = Callable[[str], Any]

_WIDE = 10  # connections of a pool, as many as the probe has greenlets
_METHODS = ("GET", "POST", "PUT", "HEAD", "PATCH", "DELETE", "OPTIONS")
# Classes of libraries, of whose objects a client consists.
_CLASSES = (
    "Session",
    "BaseAdapter",
    "PoolManager",
    "HTTPSConnectionPool",
    "OpenerDirector",
    "HTTPSConnection",
)
# What is true of the application's server alone, or leads to a proxy, as parameters of urllib3's pools.
_OF_THE_SERVER = ("assert_hostname", "assert_fingerprint", "server_hostname")
_OF_THE_PROXY = ("_proxy", "_proxy_headers", "_proxy_config", "_socks_options")


class Seen(object):
    """The clients in the stack of a connection, the outermost of each kind.

    ``url``: the one that is sent to; ``asked``: the URL or path that the application gave to its session;
    ``plain``: it called ``requests.get`` or the like, which makes a session for each request; ``many``: how
    many copies are made, in turn (``sharing``); ``own``: each has locks of its own; ``one_context``: but no
    context of its own.
    """

    def __init__(self, frame):
        # type: (Optional[FrameType]) -> None
        self.session = None  # type: Any
        self.adapter = None  # type: Any
        self.manager = None  # type: Any
        self.pool = None  # type: Any
        self.opener = None  # type: Any
        self.connection = None  # type: Any
        # Where it is none of these: the context that wraps a socket, and the socket's class.
        self.wrapped = None  # type: Any
        self.url = self.asked = ""
        self.plain = self.own = self.one_context = False
        self.many = 1
        while frame is not None:
            self._look_at(frame)
            frame = frame.f_back

    def levels(self, other=None):
        # type: (Any) -> Dict[str, Any]
        """Return what the client consists of, nothing where one is made for each request.

        ``other``: the client where it is none of requests' or urllib3's.
        """
        if self.plain:
            return {}
        found = dict(session=self.session, adapter=self.adapter, manager=self.manager, pool=self.pool)
        if other is not None and not any(each is not None for each in found.values()):
            transport = getattr(other, "_transport", None)
            pool = getattr(transport, "_pool", None) or getattr(other, "_connection_pool", None)
            return {"other": other, "transport": transport, "pool": pool}
        return found

    def context(self):
        # type: () -> Any
        """Return the context of pyOpenSSL that it connects with; None where it has none."""
        settings = getattr(self.pool, "conn_kw", None)
        for each in (getattr(self.adapter, "poolmanager", None), self.manager):
            settings = settings or getattr(each, "connection_pool_kw", None)
        context = (settings or {}).get("ssl_context")
        return context if _is_of_pyopenssl(context) else None

    def _look_at(self, frame):
        # type: (Any) -> None
        self.plain = self.plain or frame.f_globals.get("__name__") == "requests.api"
        if not frame.f_code.co_argcount:
            return
        own = frame.f_locals.get(frame.f_code.co_varnames[0])
        kind = _kind(own)
        if not kind:
            return
        if own is self.session and _called(frame, own, kind):  # also by another name than the probe's
            self.asked = _asked(frame, self.url) or self.asked
        if not is_inside(frame, own, kind):
            return
        if kind == "Session" and hasattr(own, "get") and hasattr(own, "adapters"):
            self._take(own, frame)
        elif kind == "BaseAdapter":
            self.adapter = own if self.session is None else self.adapter
        elif kind == "PoolManager" and hasattr(own, "connection_pool_kw"):
            self.manager = own
        elif kind == "HTTPSConnectionPool" and hasattr(own, "conn_kw"):
            self.pool = own
        elif kind == "OpenerDirector":
            self.opener = own
        elif kind == "HTTPSConnection":
            self.connection = own

    def _take(self, own, frame):
        # type: (Any, FrameType) -> None
        """Take the session ``own``, of which ``frame`` runs a method, for the client."""
        if self.session is not own:
            # One that fetches while another prepares a request, a token for example, is not the client.
            self.session, self.asked, self.plain = own, "", False
            if self.adapter is not None and not any(self.adapter is each for each in own.adapters.values()):
                self.adapter, self.url = None, ""
        sent = getattr(frame.f_locals.get("request"), "url", None)
        if not self.url and isinstance(sent, str):
            self.url = sent
        self.asked = _asked(frame, self.url) or self.asked


def is_client(own):
    # type: (Any) -> bool
    """Return whether ``own`` is, or may be, an object of which a client of a library's consists."""
    return bool(_kind(own))


def _kind(own):
    # type: (Any) -> str
    names = [cls.__name__ for cls in type(own).__mro__] if own is not None else []
    return next((each for each in _CLASSES if each in names), "")


def is_inside(frame, own, name):
    # type: (Any, Any, str) -> bool
    """Return whether ``frame`` runs a method of the client ``own`` that its library's class ``name`` has.

    It may be the user's method instead, if the probe's GET goes through it. Another function that has the
    client as an argument, or as its ``self``, may wait for its turn before it uses it.
    """
    return any(each == "get" or each.upper() not in _METHODS for each in _called(frame, own, name))


def _called(frame, own, name):
    # type: (Any, Any, str) -> List[str]
    """Return as what methods of the library's class ``name``, or in their place, ``frame`` is called."""
    library = [cls for cls in type(own).__mro__ if cls.__name__ == name][-1]
    if not frames.is_users(frame):
        # A library's own verbs lead to what the probe's GET goes through.
        return ["get"] if hasattr(library, frame.f_code.co_name) else []
    return [
        each
        for cls in type(own).__mro__
        for each, value in list(vars(cls).items())
        if type(value) is FunctionType and value.__code__ is frame.f_code
        if hasattr(library, each) and not each.startswith("__")
    ]


_KINDS = (
    ("Session", "adapters"),
    ("PoolManager", "connection_pool_kw"),
    ("HTTPSConnectionPool", "conn_kw"),
)


def idle(modules):
    # type: (List[Dict[str, Any]]) -> List[Seen]
    """Return the client of a program that has fetched nothing yet; nothing where it has not one alone.

    It is a global variable of ``modules``, which are dictionaries. What else is in them may be anything:
    only its type is looked at. Which adapter of a session the program uses has not been seen either: there
    is one for the narrowest and one for the widest.
    """
    found = {}  # type: Dict[int, Tuple[str, Any]]
    for module in modules:
        found.update((id(value), (kind, value)) for _, kind, value in clients_in(module))
    if len(found) != 1:
        return []
    seen, [(name, own)] = Seen(None), list(found.values())
    if name == "Session":
        seen.session = own
        return [_at_prefix(seen, prefix) for prefix in _prefixes(own)]
    if name == "PoolManager":
        seen.manager = own
    else:
        seen.pool = own
    return [seen]


def clients_in(module):
    # type: (Dict[str, Any]) -> List[Tuple[str, str, Any]]
    """Return the clients that are global variables of a module: variable, kind and client of each."""
    found = []  # type: List[Tuple[str, str, Any]]
    for variable, value in list(module.items()):
        names = [cls.__name__ for cls in type(value).__mro__]
        for kind, attribute in _KINDS:
            if kind in names and attribute in getattr(value, "__dict__", ()):
                found.append((variable, kind, value))
    return found


def _at_prefix(seen, prefix):
    # type: (Seen, str) -> Seen
    made = copy.copy(seen)
    made.url = prefix
    return made


def _prefixes(session):
    # type: (Any) -> List[str]
    """Return where the narrowest and the widest adapter for HTTPS are mounted, or the only one.

    "" where none is.
    """
    mounted = dict(
        (id(adapter), (_width(adapter), prefix))
        for prefix, adapter in list(session.adapters.items())
        if prefix.lower().startswith("https://")
    )
    ordered = [prefix for _, prefix in sorted(mounted.values())] or [""]
    return ordered if len(ordered) == 1 else [ordered[0], ordered[-1]]


def _width(adapter):
    # type: (Any) -> Tuple[int, bool]
    """Return what grows with how many requests ``adapter`` lets through; one of the user's may let few."""
    size = getattr(adapter, "_pool_maxsize", 0) if getattr(adapter, "_pool_block", False) else _WIDE
    return min(size, _WIDE), type(adapter).__name__ == "HTTPAdapter"


def _asked(frame, url):
    # type: (FrameType, str) -> str
    """Return the argument in ``frame`` that ends what was sent to ``url``; "" if there is none."""
    path = url.partition("?")[0]
    for name in frame.f_code.co_varnames[1 : frame.f_code.co_argcount]:
        value = frame.f_locals.get(name)
        if (
            isinstance(value, str)
            and value
            and value not in _METHODS
            and path.endswith(value.partition("?")[0])
        ):
            return value
    return ""


def session(seen, options):
    # type: (Seen, Dict[str, Any]) -> Tuple[Callable[[], Any], Callable[[str], str]]
    """Return what gives a session like the application's, and what makes a URL its argument.

    The adapter that serves the application's URL is mounted for the probe's. A session may put a base URL
    in front of what it is given: where the application gives it a path, the probe does.
    """
    own, base = seen.session, server_of(options["url"])
    adapter, locks, contexts = seen.adapter, sharing.locks_of(own, seen.own), _Contexts(seen)
    if adapter is None and seen.url:
        adapter = own.get_adapter(seen.url)
    of_adapter = sharing.locks_of(adapter, seen.many > 1)
    paths = set()  # type: Set[str]  # that were given to it

    def make():
        # type: () -> Any
        adapters = type(own.adapters)(own.adapters)
        more = {"proxies": {}} if options["own"] else {}  # type: Dict[str, Any]
        more.update(locks())
        made = _sending_to(base, paths, own, dict(more, adapters=adapters))
        if adapter is not None:
            made.mount(base + "/", _adapter(adapter, seen.many > 1, of_adapter(), contexts))
        return made

    def shown(url):
        # type: (str) -> str
        if not seen.asked or "://" in seen.asked or not url.startswith(base):
            return url
        path = url[len(base) :] if seen.asked.startswith("/") else url[len(base) + 1 :]
        paths.add(path.partition("?")[0])
        return path

    return in_turn(make, seen.many), shown


def _sending_to(base, paths, own, changed):
    # type: (str, Set[str], Any, Dict[str, Any]) -> Any
    """Return an object like the session ``own``, which sends the requests of the probe to ``base``."""

    def send(*arguments, **options):
        # type: (*Any, **Any) -> Any
        # The program may give it by another name, and more with it by position.
        for each in list(arguments) + list(options.values()):
            if isinstance(getattr(each, "url", None), str):
                each.url = moved(each.url, base, paths)
                break
        return type(own).send(made, *arguments, **options)

    made = substitute(own, dict(changed, send=send) if "send" not in vars(own) else changed)
    return made


def moved(url, base, paths):
    # type: (str, str, Iterable[str]) -> str
    """Return the URL at ``base`` that a session was given, from the ``url`` that it has made of it.

    It was given the URL itself, or one of ``paths``.
    """
    at = url.find(base + "/")
    if at >= 0:
        return url[at:]
    path, mark, query = url.partition("?")
    for each in paths:
        if path.endswith(each):
            return base + "/" + each.lstrip("/") + mark + query
    return url


def in_turn(make, many):
    # type: (Callable[[], Any], int) -> Callable[[], Any]
    """Return what gives a client that ``make`` makes: a new one each time, or ``many`` in turn."""
    made = [make()]
    order = itertools.count()

    def give():
        # type: () -> Any
        if many >= sharing.MANY:
            return made.pop() if made else make()
        while len(made) < many:
            made.append(make())
        return made[next(order) % many]

    return give


def _adapter(own, new, locks, contexts):
    # type: (Any, bool, Dict[str, Any], _Contexts) -> Any
    """Return an adapter with pools of its own: the first to another host may close the application's.

    ``new``: it makes its context, too, where it knows how.
    """
    manager = getattr(own, "poolmanager", None)
    if manager is None:
        return own
    changed = {"poolmanager": _manager(manager, {}), "proxy_manager": {}}
    made = substitute(own, dict(changed, **locks))
    if new and made is not own and hasattr(own, "_pool_maxsize"):
        made.init_poolmanager(own._pool_connections, own._pool_maxsize, block=own._pool_block)
    if made is not own:
        made.poolmanager.connection_pool_kw = contexts.of(made.poolmanager.connection_pool_kw)
    return made


_SET_UP_BY = ("load_cert_chain", "load_verify_locations", "set_alpn_protocols", "set_ciphers")
_SET_TO = ("maximum_version", "minimum_version", "options", "verify_flags", "verify_mode")


def _is_of_pyopenssl(context):
    # type: (Any) -> bool
    return "PyOpenSSLContext" in [cls.__name__ for cls in type(context).__mro__]


def _of_a_client(context):
    # type: (Any) -> Any
    """Return urllib3's ``context`` of pyOpenSSL as a client has it that has not connected yet.

    urllib3 sets it up for each connection. From pyOpenSSL 26.2 on a context that has made one refuses
    that, and so does the copy, where the program's would: after the first connection that it makes itself.
    """
    inner = getattr(context, "_ctx", None)  # type: Any
    made = []  # type: List[bool]

    def setting(change):
        # type: (Callable[..., Any]) -> Callable[..., Any]
        def call(*arguments, **keywords):
            # type: (*Any, **Any) -> Any
            used = getattr(inner, "_used", False)
            if not used or made:
                return change(*arguments, **keywords)
            inner._used = False
            try:
                return change(*arguments, **keywords)
            finally:
                inner._used = True

        return call

    def wrap_socket(*arguments, **keywords):
        # type: (*Any, **Any) -> Any
        made.append(True)
        return context.wrap_socket(*arguments, **keywords)

    changed = {"wrap_socket": wrap_socket}  # type: Dict[str, Any]
    changed.update((name, setting(getattr(context, name))) for name in _SET_UP_BY if hasattr(context, name))
    changed.update(
        (name, _Of(context, name, setting(setattr))) for name in _SET_TO if hasattr(context, name)
    )
    return substitute(context, changed)


class _Contexts(object):
    """Copies of contexts of pyOpenSSL: one for each copy of ``seen``, or one for all."""

    def __init__(self, seen):
        # type: (Seen) -> None
        self._one = seen.one_context
        self._made = []  # type: List[Tuple[Any, Any]]

    def of(self, settings):
        # type: (Dict[str, Any]) -> Dict[str, Any]
        """Return the parameters of urllib3's pools for one more copy."""
        context = settings.get("ssl_context")
        if not _is_of_pyopenssl(context):
            return settings
        made = [each for other, each in self._made if self._one and other is context]
        if not made:
            made = [_of_a_client(context)]
            self._made.append((context, made[0]))
        return dict(settings, ssl_context=made[0])


def _manager(own, changed):
    # type: (Any, Dict[str, Any]) -> Any
    pools = getattr(own, "pools", None)  # type: Any
    if hasattr(pools, "_maxsize"):
        changed["pools"] = type(pools)(pools._maxsize, getattr(pools, "dispose_func", None))
    return substitute(own, changed)


def manager(seen, options):
    # type: (Seen, Dict[str, Any]) -> Callable[[], Any]
    """Return what gives pool managers like that of ``seen``, which trust the probe's server."""
    own, many, contexts = seen.manager, seen.many, _Contexts(seen)
    left_out = _OF_THE_SERVER + (_OF_THE_PROXY if options["own"] else ())
    kept = dict((key, value) for key, value in own.connection_pool_kw.items() if key not in left_out)
    locks = sharing.locks_of(own, many > 1)
    kept.update(_trust(options))
    return in_turn(lambda: _manager(own, dict(locks(), connection_pool_kw=contexts.of(kept))), many)


def pool(seen, options):
    # type: (Seen, Dict[str, Any]) -> Tuple[Callable[[], Any], Callable[[str], str]]
    """Return what gives pools like that of ``seen``, for the probe's host, and what makes paths of URLs."""
    own, many, contexts = seen.pool, seen.many, _Contexts(seen)
    base = server_of(options["url"])
    host, _, port = base.partition("://")[2].rpartition("@")[2].partition(":")
    size = own.pool.maxsize
    changed = {
        "host": host,
        "_tunnel_host": host,
        "port": int(port or 443),
        "num_connections": 0,
        "num_requests": 0,
        "conn_kw": dict((key, value) for key, value in own.conn_kw.items() if key not in _OF_THE_SERVER),
        "assert_hostname": None,
        "assert_fingerprint": None,
    }  # type: Dict[str, Any]
    if options["own"]:
        changed.update(proxy=None, proxy_config=None)
    changed.update(_trust(options))
    locks = sharing.locks_of(own, many > 1)

    def make():
        # type: () -> Any
        queue = own.QueueCls(size)
        for _ in range(size):
            queue.put(None)
        return substitute(
            own, dict(changed, pool=queue, conn_kw=contexts.of(changed["conn_kw"]), **locks())
        )

    return in_turn(make, many), lambda url: url[len(base) :] if url.startswith(base) else url


def _trust(options):
    # type: (Dict[str, Any]) -> Dict[str, Any]
    """Return the parameters of urllib3 with which the probe's server is trusted."""
    if options["verify"] is False:
        return {"cert_reqs": "CERT_NONE"}
    return {} if options["verify"] is None else {"ca_certs": options["verify"]}


def server_of(url):
    # type: (str) -> str
    """Return the scheme, host and port of ``url``, which may have placeholders in its path."""
    found = re.match(r"[^/]*//[^/?#]*", url)
    return found.group() if found else url


class _Own(object):
    """An attribute that an object has for itself, while it shares all others with another one."""

    def __init__(self, value):
        # type: (Any) -> None
        self._value = value

    def __get__(self, own, kind):
        # type: (Any, Any) -> Any
        return self._value

    def __set__(self, own, value):
        # type: (Any, Any) -> None
        self._value = value


class _Of(_Own):
    """An attribute of another object, which ``change`` sets there."""

    def __init__(self, other, name, change):
        # type: (Any, str, Callable[[Any, str, Any], None]) -> None
        self._other, self._name, self._change = other, name, change

    def __get__(self, own, kind):
        # type: (Any, Any) -> Any
        return getattr(self._other, self._name)

    def __set__(self, own, value):
        # type: (Any, Any) -> None
        self._change(self._other, self._name, value)


def _own(value):
    # type: (Any) -> _Own
    return value if isinstance(value, _Own) else _Own(value)


class _Unheeded(object):
    """A base of a copy's class that keeps the program from being told of a subclass."""

    __slots__ = ()

    @classmethod
    def __init_subclass__(cls, **keywords):
        # type: (**Any) -> None
        pass


def _end(own):
    # type: (Any) -> None
    """Do nothing, in the place of a program's ``__del__``."""


def _subclasses(kind, names):
    # type: (Any, Dict[str, Any]) -> Iterator[Any]
    """Yield subclasses of ``kind`` that have ``names``: as the program makes one, and without its code."""
    plain = functools.partial(type.__new__, type(kind))
    for make, bases in ((type(kind), (kind,)), (plain, (_Unheeded, kind))):
        try:
            made = make(kind.__name__, bases, dict(names))
        except Exception:  # whatever a metaclass or __init_subclass__ of the application raises
            continue
        yield made


def substitute(own, changed):
    # type: (Any, Dict[str, Any]) -> Any
    """Return an object that is ``own`` but for the attributes ``changed``, and ``own`` where none can be.

    It shares everything else as it changes, a token for example, also in slots. So the program is not told
    of its end: a ``__del__`` may log out, or remove a certificate, which ``own`` still needs.
    """
    kind = type(own)  # type: Any
    names = dict((name, _Of(own, name, setattr)) for name in attributes.slots(kind))  # type: Dict[str, Any]
    names.update((name, _own(value)) for name, value in changed.items())
    if any("__del__" in vars(cls) for cls in kind.__mro__):
        names["__del__"] = _end
    for subclass in _subclasses(kind, names):
        try:
            made = object.__new__(subclass)
            if hasattr(own, "__dict__"):
                object.__setattr__(made, "__dict__", own.__dict__)
            return made
        except (AttributeError, TypeError):
            pass  # of a type written in C
    return own


def settled(response, options):
    # type: (Any, Dict[str, Any]) -> Any
    """Return ``response``, or the result of it if it is a future."""
    if not (hasattr(response, "add_done_callback") or hasattr(response, "rawlink")):
        return response
    if options.get("waits"):
        options["waits"]()  # the greenlet that is stopped may be one of the workers
    wait = getattr(response, "result", None) or response.get
    return wait(timeout=options["limit"])
