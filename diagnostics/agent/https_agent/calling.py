"""Call a client with what it takes: the probe's own arguments, its timeout for one, may not fit.

A session may set a timeout itself, or have a method that takes less than its library's does. What it then
raises says nothing about HTTPS.
"""

import re
import sys
from types import FunctionType

from . import frames, places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, List, Optional

# Also what inspect.Signature.bind() and functions in C say, and Python 2.
_DOES_NOT_FIT = re.compile(
    r"(?:unexpected keyword argument|multiple values for (?:keyword )?argument) '(?P<name>\w+)'"
    r"|'(?P<invalid>\w+)' is an invalid keyword|\btakes (?:[\w-]+ )*arguments?\b|too many positional"
    r"|missing (?:a|\d+) required|passed as keyword arguments|expected (?:[a-z]+ )*\d+ arguments?"
)
_CALLED = re.compile(r"(?:^|\.)(\w+)\(\) ")  # in such a text
_CHAIN = 10  # errors that led to one
# Where these do not fit to each other, the program's requests fail as well.
_MACHINERY = (
    "OpenSSL",
    "gevent",
    "geventhttpclient",
    "http",
    "httpcore",
    "httpcore2",
    "httplib",
    "httpx",
    "httpx2",
    "requests",
    "socket",
    "ssl",
    "truststore",
    "urllib",
    "urllib2",
    "urllib3",
)
# What opens a connection and writes to it: below it nothing is called with arguments of the probe's.
_CONNECTS = (
    "OpenSSL",
    "gevent._socket3",
    "gevent._socketcommon",
    "gevent.ssl",
    "http.client",
    "httpcore",
    "httpcore2",
    "httplib",
    "socket",
    "ssl",
    "urllib3.connection",
    "urllib3.util",
)
_MARK = "_https_agent_call"


def fitting(ways, added):
    # type: (List[Callable[..., Any]], Dict[str, Any]) -> Callable[..., Any]
    """Return what calls the first of ``ways`` that fits, with what of the ``added`` arguments fits.

    Each is called with the client and the URL, and has the name of the client's method. One that the
    program has in place of the library's is never passed by: it may have a lock. What has fitted once is
    called from then on.
    """
    fits = []  # type: List[Any]

    def call(client, url):
        # type: (Any, str) -> Any
        number, keywords = fits[0] if fits else (0, added)
        while True:
            try:
                result = ways[number](client, url, **keywords)
                fits[:] = [(number, keywords)]
                return result
            except Exception as error:
                refused = _refused(error, client)
                if refused is None and not (keywords and _is_of_program(error)):
                    raise
                if refused in keywords:
                    keywords = dict((name, keywords[name]) for name in keywords if name != refused)
                elif keywords:
                    keywords = {}
                elif number + 1 < len(ways) and _is_of_library(client, ways[number].__name__):
                    number, keywords = number + 1, added
                else:
                    setattr(error, _MARK, [_method(client, each) for each in _names(error, ways[number])])
                    raise

    return call


def is_of_call(error):
    # type: (BaseException) -> bool
    """Return whether ``error`` was raised since no way fits in which the probe can call the client."""
    return hasattr(error, _MARK)


def method(error):
    # type: (BaseException) -> Optional[frames.Spot]
    """Return where the program has the method that does not fit, None where it is a library's."""
    return next((spot for spot in getattr(error, _MARK, ()) if spot is not None), None)


def _names(error, way):
    # type: (BaseException, Callable[..., Any]) -> List[str]
    """Return the names of the methods that may not fit: that in the ``error``, that of the ``way``."""
    return _CALLED.findall(str(error)) + [way.__name__]


def _method(client, name):
    # type: (Any, str) -> Optional[frames.Spot]
    """Return where the method ``name`` of ``client`` begins; None where it is a library's."""
    for names in [getattr(client, "__dict__", {})] + [vars(cls) for cls in type(client).__mro__]:
        function = getattr(names.get(name), "__func__", names.get(name))
        if type(function) is FunctionType and frames.kind(function.__code__) != "agent":
            return None if _is_machinery(function.__globals__) else places.of_function(function)
    return None


def get(client, url, **keywords):
    # type: (Any, str, **Any) -> Any
    """Fetch with the method for GET."""
    return client.get(url, **keywords)


def request(client, url, **keywords):
    # type: (Any, str, **Any) -> Any
    """Fetch with the method for any verb."""
    return client.request("GET", url, **keywords)


def send(client, url, **keywords):
    # type: (Any, str, **Any) -> Any
    """Fetch with the method of requests and httpx that sends what was made before."""
    if hasattr(client, "build_request"):
        return client.send(client.build_request("GET", url, **keywords))
    made = sys.modules["requests"].Request("GET", url)  # type: Any
    return client.send(client.prepare_request(made), **keywords)


def urlopen(client, url, **keywords):
    # type: (Any, str, **Any) -> Any
    """Fetch with the method of urllib3 that the others lead to."""
    return client.urlopen("GET", url, **keywords)


def _is_of_library(client, name):
    # type: (Any, str) -> bool
    """Return whether the method ``name`` of ``client`` is the library's, also by its code."""
    method = getattr(client, name, None)
    method = getattr(method, "__func__", method)
    return _is_machinery(getattr(method, "__globals__", {}))


def _refused(error, client):
    # type: (Any, Any) -> Optional[str]
    """Return the argument that does not fit, "" for any; None where ``error`` is another.

    The program may have raised an error of its own for it.
    """
    trace, seen = sys.exc_info()[2], error
    for _ in range(_CHAIN):
        found = _DOES_NOT_FIT.search(str(seen)) if isinstance(seen, TypeError) else None
        raised = getattr(seen, "__traceback__", trace)
        if found is not None and _is_called(_innermost(raised), client) and not _is_of_connection(raised):
            return found.group("name") or found.group("invalid") or ""
        seen = getattr(seen, "__cause__", None) or getattr(seen, "__context__", None)
        if seen is None:
            break
    return None


def _is_of_program(error):
    # type: (Any) -> bool
    """Return whether code of the program alone has raised ``error``: it may check how it is called.

    Python 2 does not know what has led to an error.
    """
    for _ in range(_CHAIN):
        frame = _innermost(getattr(error, "__traceback__", None))
        if frame is None or frames.kind(frame.f_code) == "agent" or _is_machinery(frame.f_globals):
            return False
        error = getattr(error, "__cause__", None) or getattr(error, "__context__", None)
        if error is None:
            return True
    return False


def _innermost(trace):
    # type: (Any) -> Optional[FrameType]
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame if trace is not None else None


def _is_called(frame, client):
    # type: (Optional[FrameType], Any) -> bool
    """Return whether ``frame`` calls the client, or what it consists of in the program's code."""
    if frame is None or frames.kind(frame.f_code) == "agent":
        return True
    code = frame.f_code
    own = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    found = frame.f_globals
    return own is client or found.get("__name__") == "requests.api" or not _is_machinery(found)


def _is_of_connection(trace):
    # type: (Any) -> bool
    """Return whether what was raised came from the opening of a connection, or from what is sent on it."""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__"))
        if any(name == each or name.startswith(each + ".") for each in _CONNECTS):
            return True
        trace = trace.tb_next
    return False


def _is_machinery(names):
    # type: (Dict[str, Any]) -> bool
    """Return whether code with the global ``names`` is a library's."""
    return str(names.get("__name__")).partition(".")[0] in _MACHINERY
