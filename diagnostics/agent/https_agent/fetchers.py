"""Create the function that fetches: as the style, the application, or the observed connection does."""

import copy
import importlib
import sys

from . import (
    attributes,
    behind,
    calling,
    frames,
    handlers,
    https_inspection,
    like,
    others,
    plain_http,
    sharing,
    turns,
)
from .recorder import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

    Fetch = Callable[[str], Any]


# Clients that gevent does not make concurrent, and clients that it does.
_FOREIGN = ("aiohttp", "pycurl", "curl_cffi", "tornado.httpclient", "eventlet.green.ssl")
_KNOWN = ("requests", "urllib3", "httpx", "httpx2", "geventhttpclient", "botocore")
# A context is looked for so deep in what modules have, in so many values, and in clients of these packages.
_DEEP, _MANY = 4, 20000
_CONTEXTS = ("http", "httpcore", "httpcore2", "httpx", "httpx2", "urllib")
_OF_APPLICATIONS = (2, 3)  # how many arguments those of WSGI and ASGI take, which are only imported


class Unusable(Exception):
    """The set-up cannot be probed; the text says why, in one line."""


class NoSuchTarget(Unusable):
    """The named target does not exist, or cannot be used to fetch."""


def style(name, options):
    # type: (str, Dict[str, Any]) -> Fetch
    """Set this process up for the style ``name`` and return its fetch. Imports and patches."""
    if name == "grequests":
        grequests = _needed("grequests")
        return _as_grequests(grequests, options)
    if name == "requests":
        _needed("gevent.monkey").patch_all()
        return _as_module(_needed("requests"), options)[0]
    if name == "urllib3":
        _needed("gevent.monkey").patch_all()
        return _as_urllib3(_needed("urllib3").PoolManager, options)
    if name == "downloader":
        return _as_downloader(options)
    raise Unusable("there is no style %r" % name)


def _needed(name):
    # type: (str) -> Any
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unusable("%s cannot be imported in %s: %s" % (name, sys.executable, error))


def _as_module(requests, options):
    # type: (Any, Dict[str, Any]) -> Tuple[Fetch, str]
    return _as_requests(lambda: requests, options), "requests.get"


def _as_requests(give, options, shown=None):
    # type: (Callable[[], Any], Dict[str, Any], Optional[Callable[[str], str]]) -> Fetch
    """Return a fetch that calls what ``give`` gives, with what ``shown`` makes of the URL."""

    def settled(way):
        # type: (Any) -> Callable[..., Any]
        def call(client, url, **keywords):
            # type: (Any, str, **Any) -> Any
            return like.settled(way(client, url, **keywords), options)

        call.__name__ = way.__name__
        return call

    ways = [calling.get, calling.request] + ([calling.send] if "requests" in sys.modules else [])
    call = calling.fitting([settled(each) for each in ways], _added(options))

    def fetch(url):
        # type: (str) -> None
        # A session may also return what is in the response.
        status = getattr(call(give(), shown(url) if shown is not None else url), "status_code", 0)
        if isinstance(status, int) and status >= 400:
            raise others.BadRequest("HTTP status %d" % status)

    return fetch


def _added(options):
    # type: (Dict[str, Any]) -> Dict[str, Any]
    """Return the arguments of requests that the probe adds of its own."""
    verify = options["verify"]
    return dict(timeout=options["limit"], **({} if verify is None else {"verify": verify}))


def _as_grequests(grequests, options):
    # type: (Any, Dict[str, Any]) -> Fetch
    def send(client, url, **keywords):
        # type: (Any, str, **Any) -> Any
        request = client.get(url, **keywords)
        request.send()
        if request.response is None:
            raise request.exception
        return request.response

    call = calling.fitting([send], _added(options))

    def fetch(url):
        # type: (str) -> None
        status = call(grequests, url).status_code
        if status >= 400:
            raise others.BadRequest("HTTP status %d" % status)

    return fetch


def _as_urllib3(make, options):
    # type: (Any, Dict[str, Any]) -> Fetch
    verify = options["verify"]
    keywords = {"maxsize": 100}  # type: Dict[str, Any]
    if verify is False:
        keywords["cert_reqs"] = "CERT_NONE"
    elif verify is not None:
        keywords.update(cert_reqs="CERT_REQUIRED", ca_certs=verify)
    pool = make(**keywords)
    return _as_pool(lambda: pool, options)


def _as_pool(give, options, shown=None):
    # type: (Callable[[], Any], Dict[str, Any], Optional[Callable[[str], str]]) -> Fetch
    added = {"timeout": options["limit"], "retries": False}
    call = calling.fitting([calling.request, calling.urlopen], added)

    def fetch(url):
        # type: (str) -> None
        # One of the application's may also return what is in the response.
        status = getattr(call(give(), shown(url) if shown is not None else url), "status", 0)
        if isinstance(status, int) and status >= 400:
            raise others.BadRequest("HTTP status %d" % status)

    return fetch


def _as_urllib(options):
    # type: (Dict[str, Any]) -> Fetch
    ssl = _needed("ssl")
    context = others.default_context(ssl, options["verify"] or None)
    if options["verify"] is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return _with_context(context, options)


def _with_context(context, options):
    # type: (Any, Dict[str, Any]) -> Fetch
    module = _needed("urllib2" if sys.version_info[0] == 2 else "urllib.request")

    def urlopen(client, url, **keywords):
        # type: (Any, str, **Any) -> Any
        return client.urlopen(url, context=context, **keywords).read()

    call = calling.fitting([urlopen], {"timeout": options["limit"]})
    return lambda url: call(module, url)


def _as_downloader(options):
    # type: (Dict[str, Any]) -> Fetch
    """Return the fetch of the downloader's own worker: patched by its one module, with its own session."""
    try:
        if options["root"]:
            # The project's folder may be the current directory: put it on the path for this import only.
            sys.path.insert(0, options["root"])
            isolation = importlib.import_module("downloader.process.isolation")
            sys.path.remove(options["root"])
            isolation.guard()
        patching = importlib.import_module("downloader.process.patching")
    except ImportError as error:
        raise Unusable(
            "the downloader is not installed in %s (%s): name --app, -- COMMAND or another --style"
            % (sys.executable, error)
        )
    patching.apply()
    from downloader.config.config import Config
    from downloader.http.requests_client import RequestsClient
    from downloader.http.session import HttpSession

    verify = options["verify"]
    config = Config(
        source="https://localhost",
        output="-",
        store="null",
        connections=1000,
        insecure=verify is False,
        cacert=verify or "",
        deadline=options["limit"],
    )
    client = RequestsClient(config, HttpSession(config), lambda key: 0.0)
    return lambda url: client.read(url, 1 << 20)


def application(target, options):
    # type: (str, Dict[str, Any]) -> Tuple[Optional[Fetch], str]
    """Import ``MODULE[:CALLABLE]``; return its fetch, None to use a general one, and its name."""
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name)
    if attribute:
        value, above = module, None  # type: Any, Any
        for part in attribute.split("."):
            if not hasattr(value, part):
                raise NoSuchTarget("%s has no %s" % (module_name, attribute))
            value, above = getattr(value, part), value
        if not callable(value):
            raise NoSuchTarget("%s is not callable" % target)
        if _asynchronous(value):
            raise NoSuchTarget("%s is a coroutine function; a fetch under gevent is a plain one" % target)
        if _is_of_objects(value, above):
            raise NoSuchTarget("%s is a method without its object: name one of an object" % target)
        if _is_generator(value):
            raise NoSuchTarget("%s is a generator; a fetch fetches when it is called" % target)
        wanted = _wanted(value)
        named = [name for name, by_name in wanted or () if by_name]
        if wanted is None or (len(wanted) == 1 and not named):
            return _of_client(value), target
        # No application of WSGI or ASGI is given a URL, or anything by name.
        is_fetch = named or any("url" in name.lower() for name, _ in wanted)
        if is_fetch or len(wanted) not in _OF_APPLICATIONS:
            takes = "%d arguments" % len(wanted) + (" (%s by name)" % ", ".join(named) if named else "")
            raise NoSuchTarget("%s takes %s; a fetch takes one, the URL" % (target, takes))
    return None, target


def _of_client(value):
    # type: (Any) -> Fetch
    """Return the fetch ``value`` so that an error says whether it is a client's method that takes no URL
    alone.
    """
    own = getattr(value, "__self__", None)
    if not (like.is_client(own) or others.class_of(own)):
        fetch = value  # type: Fetch
        return fetch
    call = calling.fitting([lambda client, url: value(url)], {})
    return lambda url: call(own, url)


def _is_of_objects(value, above):
    # type: (Any, Any) -> bool
    """Return whether ``value`` is a method of the class ``above`` that has to be called on its objects."""
    code = getattr(value, "__code__", None)
    if not isinstance(above, type) or code is None or getattr(value, "__self__", None) is not None:
        return False
    return bool(code.co_argcount and code.co_varnames[0] == "self")


def _asynchronous(value):
    # type: (Any) -> bool
    code = getattr(value, "__code__", None)
    # An ASGI application takes three arguments and is only imported.
    return bool(code is not None and code.co_flags & 0x80 and len(_wanted(value) or "1") == 1)


def _is_generator(value):
    # type: (Any) -> bool
    return bool(getattr(getattr(value, "__code__", None), "co_flags", 0) & 0x20)


def _wanted(value):
    # type: (Any) -> Optional[List[Tuple[str, bool]]]
    """Return the required arguments of ``value``, and whether each can only be given by its name.

    Return None if they cannot be determined.
    """
    try:
        import inspect

        if sys.version_info[0] == 2:
            function = value if inspect.isroutine(value) else type(value).__call__
            if inspect.isclass(value):
                return None
            told = inspect.getargspec(function)  # type: ignore[attr-defined]
            plain = function is value and getattr(function, "__self__", None) is None
            bound = 0 if plain else 1
            names = told.args[bound : len(told.args) - len(told.defaults or ())]
            if not names and (told.varargs or len(told.args) > bound):
                names = ["url"]  # `def fetch(*urls)`, `def fetch(url=...)`
            return [(str(name), False) for name in names]
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return None
    needed = [
        (each.name, each.kind is each.KEYWORD_ONLY)
        for each in signature.parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if not needed and any(
        each.kind in (each.VAR_POSITIONAL, each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
        for each in signature.parameters.values()
    ):
        return [("url", False)]
    return needed


def general(options):
    # type: (Dict[str, Any]) -> Tuple[Fetch, str]
    """Return a general fetch and the name of its client.

    The client is the first of requests, urllib3 and the other known ones that is imported, else the first
    that is importable, else the standard library.
    """
    for imported in (True, False):
        for name in ("requests", "urllib3"):
            if imported and name not in sys.modules:
                continue
            try:
                module = importlib.import_module(name)
            except ImportError:
                continue
            if name == "requests":
                return _as_module(module, options)
            return _as_urllib3(module.PoolManager, options), "urllib3.PoolManager"
        found = others.imported(options) if imported else None
        if found is not None:
            return found
    return _as_urllib(options), "urllib"


def has_known():
    # type: () -> bool
    """Return whether a client that gevent makes concurrent is loaded, besides the standard library's."""
    return any(name in sys.modules for name in _KNOWN)


def foreign():
    # type: () -> List[Dict[str, Any]]
    """Return the loaded clients that gevent does not make concurrent, if no other client is in use.

    Each has its name and the line that imported it. Another client is in use if it is loaded, or if
    http.client tried an HTTPS connection.
    """
    if record.tried or has_known():
        return []
    found = []
    for name in _FOREIGN:
        if name in sys.modules:
            user, caller = record.importers.get(name, (None, None, 0))[:2]
            found.append({"name": name, "at": user or caller})
    return found


def is_in_client(frame):
    # type: (FrameType) -> bool
    """Return whether ``frame`` is inside of a client of HTTPS."""
    return _Client(frame, False).is_there


class _Client(object):
    """The client of one greenlet, of which there may be none in its stack."""

    def __init__(self, frame, connects, greenlet=None):
        # type: (Optional[FrameType], bool, Any) -> None
        self.greenlet = greenlet
        self.seen, self.other = _client(frame)
        self.handlers = handlers.Handlers(frame)
        levels = self.seen.levels(self.other)
        found = self.seen.plain or any(each is not None for each in levels.values())
        found = found or self.seen.connection is not None
        schemes = plain_http.of(frame)
        self.is_there = connects or (found and not schemes.is_plain)
        self.is_elsewhere = not connects and schemes.is_busy  # it neither has a client nor waits for one
        try:
            self.sighting = sharing.Sighting(levels, frame, connects)
        except Exception:  # what the application's objects raise; its own request must not fail of it
            self.sighting = sharing.Sighting({}, frame, connects)

    def has_of(self, other):
        # type: (_Client) -> bool
        """Return whether the two have anything in common."""
        return self.sighting.has_of(other.sighting)


class Connecting(object):
    """The client of a greenlet that connects, of which the probe makes copies once it is known how many."""

    def __init__(self, frame, greenlet, wrapped=None):
        # type: (Optional[FrameType], Any, Any) -> None
        self._first = self._measured = _Client(frame, True, greenlet)
        self._wrapped = wrapped
        self.at = frames.user(frame) or frames.caller(frame)
        self.sharing = sharing.Sharing(1, False, sharing.UNCLEAR, 1)
        self._one_context = False
        self.waits = []  # type: List[turns.Wait]
        self.line = []  # type: List[turns.Wait]  # those at one place that may be idle workers

    def is_known(self):
        # type: () -> bool
        """Return whether the client that is measured is one that gevent makes concurrent, by its name."""
        seen = self._measured.seen
        made = (seen.session, seen.adapter, seen.manager, seen.pool, self._measured.other)
        return seen.plain or any(each is not None for each in made)

    def is_raw(self):
        # type: () -> bool
        """Return whether it is no client at all: code that makes TLS connections itself."""
        seen = self._measured.seen
        return not self.is_known() and seen.opener is None and seen.connection is None

    def is_besides(self):
        # type: () -> bool
        """Return whether it is none of the clients that are loaded: of the standard library, or of its
        own.

        That may be a check of health, or all that the program fetches with.
        """
        return has_known() and not self.is_known()

    def look_at(self, places):
        # type: (List[turns.Place]) -> None
        """Find out what most greenlets do, and how many clients they have, from where they are."""
        self._judge([self._first], places)
        self._wait_for([each for each in self.waits if each.turn or each.lent])

    def may_take_turns(self):
        # type: () -> bool
        """Return whether so many wait that it has to be seen what they do after this request."""
        using = self.sharing.using
        return turns.stand(using, self.waits) or turns.stand(using, self.line)

    def may_be_idle(self):
        # type: () -> bool
        """Return whether so many wait still as idle workers do, too, while one makes a request at most."""
        few = len(self.sharing.waiting) < turns.SOME  # who has started a request waits for it, too
        return few and self.sharing.using < 2 and turns.stand(1, self.line)

    def take_turns(self):
        # type: () -> None
        """Note that those wait for their turn that might have been idle."""
        self._wait_for(self.line)

    def let_idle(self):
        # type: () -> None
        """Note where those wait of which it was not seen that it is for their turn."""
        self.sharing.idle = [each.spot for each in self.line if each.spot is not None]

    def let_on(self):
        # type: () -> None
        """Note that nobody waits for a turn: what they wait for is not around each request."""
        self.sharing.waiting = []

    def awaits_results(self):
        # type: () -> bool
        """Return whether so many wait for results of others that they may take turns."""
        results = [each for each in self.waits if each.kind == turns.RESULT]
        return turns.stand(self.sharing.using, results)

    def waits_for(self, places):
        # type: (List[turns.Place]) -> bool
        """Return whether of those that waited so many still do at ``places`` that they may take turns."""
        return turns.stand(len(self.using(places)), [each for each in self.waits if each.lasts()])

    def using(self, places):
        # type: (List[turns.Place]) -> List[Any]
        """Return the greenlets at ``places`` that make a request."""
        at = [place for place in places if place.frame is not None]
        return [place.greenlet for place in at if _Client(place.frame, place.connects).is_there]

    def has_ended(self, greenlet):
        # type: (Any) -> bool
        """Return whether the request of ``greenlet`` has ended, which is the one that connected first."""
        return greenlet.gr_frame is None or not _Client(greenlet.gr_frame, False).is_there

    def look_again(self, places, stopped, moved, ended):
        # type: (List[turns.Place], Any, bool, bool) -> None
        """Do the same after the request of ``stopped``, which connected first; it may not have ``ended``.

        Those that waited meanwhile may have waited for their turn, for a login, or for work: some have
        ``moved`` on.
        """
        before, at_first, line = self.waits, self.sharing, self.line
        again = not self.has_ended(stopped)
        using = self._judge([] if again else [self._first], places)
        if not using:
            self.sharing, self._measured = at_first, self._first
        shares = any(
            place.greenlet is not stopped and _Client(place.frame, False).has_of(self._first)
            for place in places
            if place.frame is not None
        )
        rest = [each for each in before if each.lasts()]
        if len(using) > 1 or rest or any(each.lasts() for each in line):
            self.sharing.using = max(1, len(using))
        self._wait_for(turns.held(before, rest, moved, ended, shares, len(using)))

    def _judge(self, clients, places):
        # type: (List[_Client], List[turns.Place]) -> List[sharing.Sighting]
        """Judge what is seen of ``clients`` and in ``places``; return those that have a client there."""
        seen, rest = [], []
        for place in places:
            client = None
            if place.frame is not None:
                client = _Client(place.frame, place.connects, place.greenlet)
            if client is not None and client.is_there:
                seen.append(client)
            elif client is None or not client.is_elsewhere:
                rest.append(place)
        clients = clients + seen
        alike = sharing.alike([each.sighting for each in clients])
        if alike:
            self.sharing = sharing.judged(alike)
            self._measured = next(each for each in clients if each.sighting is alike[0])
            context = self._measured.seen.context()
            same = [each for each in clients if each.seen.context() is context]
            self._one_context = context is not None and len(same) > 1
            self.sharing.at = alike[0].spot or next(iter(self.made()), None)
        callers = [other for each in clients for other in behind.of(each.greenlet)]
        codes = set().union(*[each.sighting.codes for each in clients])  # type: Set[Any]
        codes = codes.union(*[turns.codes_of(each.gr_frame) for each in callers])
        variables = self._measured.sighting.variables
        around = set().union(*[each.sighting.around for each in clients])  # type: Set[Any]
        around = around.union(*[turns.around_of(each.gr_frame) for each in callers])
        waits = turns.waits_of(rest, codes, variables, around)
        self.waits = [each for each in waits if each.kind in turns.TURNS]
        self.line = turns.line(waits)
        return [each.sighting for each in seen if any(each.sighting is other for other in alike)]

    def _wait_for(self, waits):
        # type: (List[turns.Wait]) -> None
        """Note where greenlets wait, with the place of most first."""
        spots = [each.spot for each in waits if each.spot is not None]
        self.sharing.waiting = sorted(spots, key=lambda each: -spots.count(each))

    def made(self):
        # type: () -> List[frames.Spot]
        """Return where the user made what lets requests through: an adapter, a manager, a pool."""
        seen = self._measured.seen
        manager = getattr(seen.adapter, "poolmanager", None)
        clients = [seen.adapter, manager, seen.manager, seen.pool, self._measured.other]
        spots = [record.clients.get(id(each)) for each in clients if each is not None]
        return [each for each in spots if each is not None]

    def besides(self):
        # type: () -> List[Dict[str, Any]]
        """Return the clients that the program has besides the measured one, as global variables.

        Each has the ``name`` of the variable, where it was made (``at``), and the ``file`` of its module.
        """
        seen = self._measured.seen
        manager = getattr(seen.adapter, "poolmanager", None)
        known = [
            id(each) for each in (seen.session, manager, seen.manager, seen.pool, self._measured.other)
        ]
        found = []
        for module in _modules():
            for variable, _, value in like.clients_in(module):
                if id(value) not in known:
                    known.append(id(value))
                    at, file = record.clients.get(id(value)), str(module.get("__file__") or "")
                    found.append({"name": variable, "at": at, "file": file and frames.absolute(file)})
        return found

    def seen(self):
        # type: () -> sharing.Sharing
        """Return what is known of the client that is measured."""
        self.sharing.handlers = self._measured.handlers.told()
        return self.sharing

    def fetch(self, options):
        # type: (Dict[str, Any]) -> Optional[Tuple[Fetch, str]]
        """Return the fetch through as many copies, and its name; None if it cannot be copied."""
        return self._with(self.sharing.many, self.sharing.own, options)

    def with_own(self, options):
        # type: (Dict[str, Any]) -> Optional[Tuple[Fetch, str]]
        """Return the same with a copy for each request, None where it is known how many the program has.

        Code that opens each connection itself has nothing to share.
        """
        if self.sharing.evidence != sharing.UNCLEAR or self.is_raw():
            return None
        return self._with(sharing.MANY, True, options)

    def _with(self, many, own, options):
        # type: (int, bool, Dict[str, Any]) -> Optional[Tuple[Fetch, str]]
        seen = copy.copy(self._measured.seen)
        seen.many, seen.own, seen.one_context = many, own, self._one_context
        seen.wrapped = self._wrapped
        return self._measured.handlers.before(_of(seen, self._measured.other, options))


def _client(frame):
    # type: (Optional[FrameType]) -> Tuple[like.Seen, Any]
    """Return the clients in the stack of ``frame``, and the one that is none of requests' or urllib3's."""
    seen, other = like.Seen(frame), None  # type: like.Seen, Any
    while frame is not None:
        own = frame.f_locals.get("self")
        name = others.class_of(own)
        if name and like.is_inside(frame, own, name):
            other = own
        frame = frame.f_back
    return seen, other


def of_modules(options):
    # type: (Dict[str, Any]) -> List[Tuple[Tuple[Fetch, str], str]]
    """Return the same for the client that is a global variable of the user's modules, if there is one.

    There are two where it is a session with several adapters, each with the prefix at which it is mounted.
    """
    made = [(_of(seen, None, options), seen.url) for seen in like.idle(_modules())]
    return [(found, prefix) for found, prefix in made if found is not None]


def of_early_context(options):
    # type: (Dict[str, Any]) -> Optional[Tuple[Fetch, Dict[str, str]]]
    """Return a fetch with a context that the user's code has from before the patching, and where that is.

    That is the ``name`` of the variable, with what leads from it to the context, and the ``file`` of its
    module. Those of libraries are left out: a program that fetches with another client never uses them.
    Return None where there is none.
    """
    for name, file, value in _held(_modules()):
        if https_inspection.is_early_context(value):
            try:
                others.trusting(value, options)
            except (TypeError, RuntimeError):
                pass  # its attributes cannot be set any more, and no fetch with it can succeed
            return _with_context(value, options), {"name": name, "file": file and frames.absolute(file)}
    return None


def _held(modules):
    # type: (List[Dict[str, Any]]) -> Iterator[Tuple[str, str, Any]]
    """Yield name, file of the module, and value of what the variables of ``modules`` hold.

    After them comes what is in their dictionaries and lists, in their classes, and in the instances of
    these and of clients.
    """
    names = set(module.get("__name__") for module in modules)
    level = [("", str(each.get("__file__") or ""), list(each.items())) for each in modules]  # type: List[Any]
    left = _MANY
    for _ in range(_DEEP):
        within = []  # type: List[Any]
        for before, file, values in level:
            for name, value in values[:left]:
                left -= 1
                yield before + name, file, value
                within.append((before + name, file, _within(value, names)))
        level = [each for each in within if each[2]]


def _within(value, modules):
    # type: (Any, Set[Any]) -> List[Tuple[str, Any]]
    """Return what is in a dictionary, a list, a class of ``modules``, an instance of one, or a client."""
    kind = type(value)  # type: Any
    if kind is dict:
        return [("[...]", each) for each in list(value.values())[:_MANY]]  # keys may be secret
    if kind in (list, tuple):
        return [("[%d]" % index, each) for index, each in enumerate(value[:_MANY])]
    try:
        # Not isinstance(), nor an attribute of the object: proxies would load what they stand for.
        if issubclass(kind, type):
            found = dict(vars(value)) if _is_of(value, modules) else {}
        else:
            found = attributes.of(value) if _is_of(kind, modules) or _is_of_client(kind) else {}
    except Exception:  # what the application's objects raise
        return []
    return [("." + str(name), each) for name, each in found.items()]


def _is_of_client(kind):
    # type: (Any) -> bool
    """Return whether ``kind`` is a part of a client whose contexts gevent makes concurrent."""
    package = str(type.__getattribute__(kind, "__dict__").get("__module__")).partition(".")[0]
    return package in _CONTEXTS and not kind.__name__.startswith("Async")


def _is_of(kind, modules):
    # type: (Any, Set[Any]) -> bool
    return type.__getattribute__(kind, "__dict__").get("__module__") in modules


def _modules():
    # type: () -> List[Dict[str, Any]]
    """Return what is in each of the user's modules."""
    files = [(name, https_inspection.file_of(name)) for name in list(sys.modules)]
    own = [name for name, path in files if path and frames.kind_of_file(path) == "user"]
    return [https_inspection.contents(name) for name in own]


def _of(seen, other, options):
    # type: (like.Seen, Any, Dict[str, Any]) -> Optional[Tuple[Fetch, str]]
    """Return a fetch with the client, and its name; None where there is none, or it cannot be copied."""
    try:
        return _with(seen, other, options)
    except Exception:  # whatever code of the application raises; its own request must not fail of it
        return None


def _with(seen, other, options):
    # type: (like.Seen, Any, Dict[str, Any]) -> Optional[Tuple[Fetch, str]]
    if seen.session is not None and seen.plain:
        return _as_module(sys.modules["requests"], options)
    if seen.session is not None:
        give, shown = like.session(seen, options)
        return _as_requests(give, options, shown), type(seen.session).__module__ + ".Session"
    if seen.manager is not None:
        name = type(seen.manager).__module__ + ".PoolManager"
        return _as_pool(like.manager(seen, options), options), name
    if seen.pool is not None:
        give, shown = like.pool(seen, options)
        return _as_pool(give, options, shown), type(seen.pool).__module__ + ".HTTPSConnectionPool"
    if other is not None:
        return others.like(other, options, seen.many)
    if seen.opener is not None:
        return others.as_opener(seen.opener, options), "urllib"
    if seen.connection is not None:
        return others.as_connection(seen.connection, options)
    return others.as_socket(seen.wrapped[0], seen.wrapped[1], options) if seen.wrapped is not None else None
