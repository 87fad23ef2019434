"""Support the clients besides urllib3 that gevent makes concurrent: httpx, http.client, geventhttpclient.

The probe uses a client of its own that is like the application's: with its limits, hooks and TLS context.
The application's pool may have room for only one connection, and the connection at which the probe starts
takes it.
"""

import sys

from . import attributes, calling, sharing
from .like import in_turn, server_of, substitute

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Set, Tuple

    Fetch = Callable[[str], Any]

_MANY = 1000
_HTTPX = ("httpx", "httpx2")  # the second is what the first has become
_IGNORE_UNEXPECTED_EOF = 0x80  # an OP_ of OpenSSL 3, whose name only newer Pythons have


class BadRequest(Exception):
    """The response is not the expected one."""


def class_of(own):
    # type: (Any) -> str
    """Return the name of the library's class of a client that can be passed to ``like``, else ""."""
    return _class_of(own)[1]


def _class_of(own):
    # type: (Any) -> Tuple[str, str]
    """Return the library's module as well, which is "" where it is no such client."""
    for module, name in [(each, "Client") for each in _HTTPX] + [("geventhttpclient", "HTTPClient")]:
        client = getattr(sys.modules.get(module), name, None)
        if any(each is client for each in type(own).__mro__):
            return module, name
    return "", ""


def like(own, options, many=1):
    # type: (Any, Dict[str, Any], int) -> Tuple[Fetch, str]
    """Return a fetch that does the same as the client ``own``, or ``many`` like it, and its name."""
    library, name = _class_of(own)
    if name == "Client":
        locks = sharing.locks_of(own, many > 1)
        for each in _transports([own._transport, own._mounts]):
            trusting(getattr(getattr(each, "_pool", None), "_ssl_context", None), options)
        give = in_turn(lambda: _httpx_like(sys.modules[library], own, options, locks()), many)
        return _as_httpx(give, options), library + ".Client"
    pool = own._connection_pool
    context = trusting(getattr(pool, "ssl_context", None), options)
    return _as_geventhttpclient(pool.size, context, options, many), "geventhttpclient.HTTPClient"


def imported(options):
    # type: (Dict[str, Any]) -> Optional[Tuple[Fetch, str]]
    """Return the same for a client that is imported but was not seen in use; None if there is none."""
    ssl = sys.modules.get("ssl")
    library = next((each for each in _HTTPX if each in sys.modules), "")
    if library and ssl is not None:
        context = trusting(default_context(ssl), options)
        client = sys.modules[library].Client(verify=context)
        return _as_httpx(lambda: client, options), library + ".Client"
    if "geventhttpclient" in sys.modules:
        context = trusting(default_context(sys.modules["gevent.ssl"]), options)
        return _as_geventhttpclient(_MANY, context, options), "geventhttpclient.HTTPClient"
    return None


def default_context(ssl, cafile=None):
    # type: (Any, Optional[str]) -> Any
    """Return the default context of the module ``ssl``, for which a cut connection is an error.

    Some Pythons, and a distribution's or a user's configuration, make it look like the end of a response.
    """
    context = ssl.create_default_context(cafile=cafile)
    if ssl.OPENSSL_VERSION_INFO >= (3,):
        context.options &= ~_IGNORE_UNEXPECTED_EOF
    return context


def trusting(context, options):
    # type: (Any, Dict[str, Any]) -> Any
    """Make ``context``, which may be the application's, trust the probe's server, and return it."""
    if context is not None and options["verify"] is False:
        context.check_hostname = False
        context.verify_mode = 0
    elif context is not None and options["verify"] is not None:
        context.load_verify_locations(options["verify"])
    return context


def as_opener(opener, options):
    # type: (Any, Dict[str, Any]) -> Fetch
    """Return a fetch that uses the application's opener of urllib."""
    for handler in opener.handlers:
        trusting(getattr(handler, "_context", None), options)

    def opened(client, url, **keywords):
        # type: (Any, str, **Any) -> Any
        return client.open(url, **keywords).read()

    call = calling.fitting([opened], {"timeout": options["limit"]})
    return lambda url: call(opener, url)


def as_connection(own, options):
    # type: (Any, Dict[str, Any]) -> Tuple[Fetch, str]
    """Return a fetch that makes a connection of http.client's like ``own`` each time, and its name."""
    trusting(getattr(own, "_context", None), options)
    base = server_of(options["url"])
    host, port = _address_in(base)
    unused = {
        "host": host,
        "port": port,
        "timeout": options["limit"],
        "sock": None,
        "_buffer": [],
        "_method": None,
        "_HTTPConnection__response": None,
        "_HTTPConnection__state": "Idle",
    }  # type: Dict[str, Any]
    if options["own"]:
        unused["_tunnel_host"] = None
    call = calling.fitting([calling.request], {})

    def fetch(url):
        # type: (str) -> None
        made = substitute(own, dict(unused, _buffer=[]))
        try:
            call(made, url[len(base) :])
            response = made.getresponse()
            response.read()
            if response.status >= 400:
                raise BadRequest("HTTP status %d" % response.status)
        finally:
            made.close()

    return fetch, "http.client.HTTPSConnection"


def as_socket(context, kind, options):
    # type: (Any, Any, Dict[str, Any]) -> Tuple[Fetch, str]
    """Return a fetch over sockets of the class ``kind`` that ``context`` wraps, and its name."""
    trusting(context, options)
    base = server_of(options["url"])
    host, port = _address_in(base)

    def fetch(url):
        # type: (str) -> None
        connection = context.wrap_socket(
            _connected(kind, host, port, options["limit"]), server_hostname=host
        )
        try:
            request = "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n" % (url[len(base) :], host)
            connection.sendall(request.encode("ascii"))
            answer = more = connection.recv(1000)
            while more:
                more = connection.recv(1000)
        finally:
            connection.close()
        if not answer.startswith((b"HTTP/1.1 2", b"HTTP/1.0 2")):
            raise BadRequest("the response is %r" % answer[:30])

    return fetch, "ssl.SSLContext.wrap_socket"


def _address_in(base):
    # type: (str) -> Tuple[str, int]
    """Return host and port of the URL ``base``; an address of IPv6 without its brackets."""
    rest = base.partition("://")[2].rpartition("@")[2]
    host, _, port = rest[1:].partition("]") if rest.startswith("[") else rest.partition(":")
    return host, int(port.lstrip(":") or 443)


def _connected(kind, host, port, limit):
    # type: (Any, str, int, float) -> Any
    socket = sys.modules["socket"]
    for family, _, _, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        made = kind(family, socket.SOCK_STREAM)
        made.settimeout(limit)
        try:
            made.connect(address)
            return made
        except socket.error as error:
            made.close()
            failed = error
    raise failed


def _transports(found):
    # type: (List[Any]) -> List[Any]
    """Return the transports of httpx in ``found``, and those that they wrap, also in lists and
    dictionaries."""
    made, seen = [], set()  # type: List[Any], Set[int]
    while found and len(seen) < _MANY:
        own = found.pop()
        if id(own) in seen:
            continue
        seen.add(id(own))
        if isinstance(own, dict):
            found.extend(own.values())
        elif isinstance(own, (list, tuple)):
            found.extend(own)
        elif hasattr(type(own), "handle_request"):
            made.append(own)
            found.extend(attributes.of(own).values())
    return made


def _httpx_like(httpx, own, options, locks):
    # type: (Any, Any, Dict[str, Any], Dict[str, Any]) -> Any
    changed = dict(locks)
    states = type(getattr(own, "_state", None))  # type: Any
    if hasattr(states, "UNOPENED"):
        changed["_state"] = states.UNOPENED  # the application may close its client before the last is made
    pool = getattr(own._transport, "_pool", None)  # type: Any
    if type(own._transport) is httpx.HTTPTransport and hasattr(pool, "_ssl_context"):
        limits = httpx.Limits(
            max_connections=pool._max_connections,
            max_keepalive_connections=pool._max_keepalive_connections,
        )
        context = trusting(pool._ssl_context, options)
        changed.update(_transport=httpx.HTTPTransport(verify=context, limits=limits), _mounts={})
    return substitute(own, changed)


def _as_httpx(give, options):
    # type: (Callable[[], Any], Dict[str, Any]) -> Fetch
    call = calling.fitting([calling.get, calling.request, calling.send], {"timeout": options["limit"]})

    def fetch(url):
        # type: (str) -> None
        # One of the application's may also return what is in the response.
        status = getattr(call(give(), url), "status_code", 0)
        if isinstance(status, int) and status >= 400:
            raise BadRequest("HTTP status %d" % status)

    return fetch


def _as_geventhttpclient(size, context, options, many=1):
    # type: (int, Any, Dict[str, Any], int) -> Fetch
    """Return a fetch with ``many`` clients, which are created for the first URL's host."""
    clients = []  # type: List[Any]  # what gives them
    keywords = {
        "concurrency": size,
        "connection_timeout": options["limit"],
        "network_timeout": options["limit"],
        "insecure": options["verify"] is False,
    }
    if context is not None:
        keywords["ssl_context_factory"] = lambda cafile=None: context

    def fetch(url):
        # type: (str) -> None
        if not clients:
            make = sys.modules["geventhttpclient"].HTTPClient.from_url
            clients.append(in_turn(lambda: make(url, **keywords), many))
        response = clients[0]().get(url)
        response.read()
        if response.status_code >= 400:
            raise BadRequest("HTTP status %d" % response.status_code)

    return fetch
