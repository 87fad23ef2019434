"""Measure N simultaneous fetches at two delays, what holds the hub, and where greenlets wait."""

import os
import re
import sys

from . import calling, frames, places, sampler
from .clocks import clock, cpu
from .fetchers import Unusable
from .openings import Opening
from .patience import Patience
from .recorder import record
from .timeline import Timeline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple

    Fetch = Callable[[str], Any]

_LOOK_EVERY = 0.02
_LOOK_AT = 50  # greenlets
_STARTED = 20  # greenlets, of which each started the next
_REPEATS = 3
_OF_A_GROUP = 3  # errors that are shown
_ERRORS = 5  # maximum that is reported with text and stack
_MOSTLY = 0.8
_WAITS = 0.5  # seconds without a connection after which the first request is said to wait for the program
_WORKS = 5.0  # seconds after which a function that serves, or only sleeps, is taken for no fetch
_OVERLAP = 1.5  # delays that all requests take at most where they did not wait for each other
_LEAST_DELAY = 0.05  # a shorter one cannot be told from what requests cost
_TIMEOUT = re.compile("timeout|timed.?out", re.IGNORECASE)
_STUCK = 5.0  # seconds without the hub, beyond the time that all requests take one by one


def urls(template, run, count, delay):
    # type: (str, str, int, float) -> List[str]
    """Return the URLs of one round: ``template`` with ``{run}``, ``{delay}`` and ``{index}`` filled in."""
    return [
        template.replace("{run}", run).replace("{delay}", "%g" % delay).replace("{index}", str(index))
        for index in range(count)
    ]


class Probe(object):
    """A measurement of ``fetch``; the result can be written as JSON."""

    def __init__(self, fetch, spec):
        # type: (Fetch, Dict[str, Any]) -> None
        gevent = _gevent()
        self._gevent = gevent
        self._pid = os.getpid()
        self._sleep = sys.modules["gevent.hub"].sleep  # tests that are not to wait replace gevent.sleep
        self._fetch = fetch
        self._spec = spec
        self._parked = {}  # type: Dict[Any, float]
        self._most_parked = {}  # type: Dict[Any, int]
        self._during = {}  # type: Dict[Any, float]
        self._looked = 0.0
        self._gap = 0.0
        self._looking = False
        self._timeline = Timeline(0.0)
        self._opening = None  # type: Optional[Opening]
        self.greenlets = set()  # type: set[Any]
        self.connects = False  # a request has come to a connection
        # Called with what there is after the first request, if that has succeeded.
        self.on_warm = None  # type: Optional[Callable[[Dict[str, Any]], None]]

    def run(self, told, longer, waits=None):
        # type: (Callable[[Dict[str, Any]], None], Callable[[], None], Optional[Callable[[], None]]) -> Any
        """Warm up, measure, and return the result; call ``told`` with a partial one when the time is over.

        ``longer`` is called once when it takes more than the limit for lack of a CPU; ``waits`` where the
        first request comes to no connection: it may wait for a lock of a greenlet that is stopped.
        """
        gevent, spec = self._gevent, self._spec
        watch = sampler.Sampler(gevent.get_hub())
        self._thread = sampler.Spent()
        self._began = clock()
        rounds = []  # type: List[Dict[str, Any]]
        result = {"rounds": rounds, "name": spec.get("name"), "waited": False}  # type: Dict[str, Any]

        def wait():
            # type: () -> None
            if waits is not None and not rounds and not self._joined(_WAITS) and not self.connects:
                result["waited"] = True
                waits()

        # A serial process holds the hub for one request at a time, at most for as long as all of them take.
        stuck = 2 * spec["requests"] * spec["delay"] + _STUCK
        patience = self._patience = Patience(spec["limit"], stuck, clock())
        asked = []  # type: List[float]

        def tick():
            # type: () -> None
            now = clock()
            if watch.over:
                return
            after = patience.exhausted(now, watch.starved, watch.stamp, watch.starved_then)
            if self.on_warm is not None and not rounds and self._rests():
                after = now - self._began
            if after is not None:
                watch.over = True
                told(self._complete(result, watch, "nothing more came within %.0f s" % after))
            elif not asked and patience.needs_more(now, watch.starved):
                asked.append(now)
                longer()

        watch.on_tick = tick
        watch.on_held = self._held
        watch.start()
        self._looking = True
        gevent.spawn(self._look)
        try:
            for number, (count, delay) in enumerate(self._plan(result)):
                if patience.is_over(clock(), watch.starved):
                    break
                # The first of N requests at no delay opens their connections.
                opens = not (spec["fixed"] or any(each["requests"] == spec["requests"] for each in rounds))
                run = "%s-%d" % (spec["run"], number)
                rounds.append(self._round(run, count, delay, wait, opens and count == spec["requests"]))
                if number == 0 and self.on_warm is not None and not rounds[0]["errors"]:
                    self.on_warm(self._complete(result, watch, None))
        finally:
            watch.stop()
            # Not killed: what is raised in a greenlet while a finalizer runs in it is swallowed there, and
            # who waits for its end waits for ever.
            self._looking = False
            self._thread.close()
        return self._complete(result, watch, None)

    def guard(self, told):
        # type: (Callable[[Dict[str, Any]], None]) -> Callable[[], None]
        """Return what ends a watch over the hub; ``told`` gets a result where it does not run meanwhile.

        The program goes on in it: a lock that is none of gevent's may block its thread for good.
        """
        watch = sampler.Sampler(self._gevent.get_hub())
        self._thread = sampler.Spent()
        self._began = clock()

        def tick():
            # type: () -> None
            held = clock() - watch.stamp - (watch.starved - watch.starved_then)
            if not watch.over and held >= self._spec["limit"]:
                watch.over = True
                result = {"rounds": [], "name": None, "waited": False}  # type: Dict[str, Any]
                told(self._complete(result, watch, "nothing more came within %.0f s" % held))

        def end():
            # type: () -> None
            watch.stop()
            self._thread.close()

        watch.on_tick = tick
        watch.start()
        return end

    def _plan(self, result):
        # type: (Dict[str, Any]) -> Any
        """Yield the rounds: a warm-up, then N at no delay and N at the delay, repeated while unclear."""
        rounds = result["rounds"]
        yield 1, 0.0
        for each in self._pairs(rounds):
            yield each
        # The program may give a request up sooner than the server answers it.
        if self._spec["fixed"] or rounds[-2]["errors"] or not _timed_out(rounds[-1]):
            return
        # One of them alone shows that: those at once may wait for each other.
        delay = self._spec["delay"]
        while delay >= _LEAST_DELAY:
            yield 1, delay
            alone = rounds.pop()
            if not _timed_out(alone):
                break
            result["impatient"] = self._spec["delay"]
            delay = min(delay, alone["wall"]) / 2
        if "impatient" not in result or delay < _LEAST_DELAY or alone["errors"]:
            return
        self._spec["delay"] = result["delay"] = round(delay, 3)
        del rounds[1:]
        for each in self._pairs(rounds):
            yield each

    def _pairs(self, rounds):
        # type: (List[Dict[str, Any]]) -> Any
        """Yield N at no delay and N at the delay, repeated while it is unclear what they show."""
        count, delay = self._spec["requests"], self._spec["delay"]
        if self._spec["fixed"]:
            yield 1, 0.0
            yield 1, 0.0
        for _ in range(_REPEATS):
            if not self._spec["fixed"]:
                yield count, 0.0
            yield count, delay
            last = rounds[-1]
            grown = last["wall"] - (0.0 if self._spec["fixed"] else rounds[-2]["wall"])
            single = min([each["wall"] for each in rounds[1:3]]) if self._spec["fixed"] else delay
            slope = grown / max(single, 1e-6)
            if clock() + sum(each["wall"] for each in rounds[-2:]) > self._patience.ends:
                break  # no time is left for another pair
            # A rate or a busy machine: another pair shows which.
            far = last["wall"] - last["cpu"] - last["ready"] > (1 + (count - 1) / 3.0) * single
            # A serial process takes as long as one request at a time does; more means a busy machine.
            if (slope < 1.5 and not far) or 0.7 * count < slope < 1.4 * count or last["errors"]:
                break

    def began(self, greenlet):
        # type: (Any) -> bool
        """Return whether the probe started ``greenlet``, itself or by others, or that is unknown."""
        for _ in range(_STARTED):
            if greenlet in self.greenlets:
                return True
            start = getattr(greenlet, "spawning_greenlet", None)
            if start is None:
                return True  # a greenlet of an older gevent, or none of gevent's
            greenlet = start()
            if greenlet is None:
                return True
        return False

    def is_of(self, greenlet):
        # type: (Any) -> bool
        """Return whether ``greenlet`` is known to be one of a request, or to be started by such a one.

        None is in a child that a request has forked.
        """
        if os.getpid() != self._pid:
            return False
        for _ in range(_STARTED):
            if greenlet is None or greenlet in self.greenlets:
                return greenlet is not None
            greenlet = getattr(greenlet, "spawning_greenlet", lambda: None)()
        return False

    def _rests(self):
        # type: () -> bool
        """Return whether the first fetch has only slept or served, while the hub ran, and not connected."""
        slept = sum(seconds for stack, seconds in list(self._parked.items()) if _is_at_rest(stack))
        return slept > _WORKS and slept > _MOSTLY * self._looked and not record.tried

    def _joined(self, seconds):
        # type: (float) -> bool
        """Return whether all requests of the round end within ``seconds``."""
        self._gevent.joinall(list(self.greenlets), timeout=seconds)
        return all(each.ready() for each in self.greenlets)

    def _round(self, run, count, delay, wait, opens):
        # type: (str, int, float, Callable[[], None], bool) -> Dict[str, Any]
        errors = []  # type: List[Dict[str, Any]]
        kinds = {}  # type: Dict[str, int]
        done = []  # type: List[float]
        began, spent = clock(), cpu()
        self._thread.since()
        timeline = self._timeline = Timeline(began)

        def one(index, url):
            # type: (int, str) -> None
            frame, failed = sys._getframe(), True
            timeline.begin(index, frame, clock())
            try:
                self._fetch(url)
                failed = False
            except BaseException as error:
                name = _name(error)
                kinds[name] = kinds.get(name, 0) + 1
                if len(errors) < _ERRORS:
                    told = {"class": name, "text": _text(error), "stack": _raised(error)}  # type: Dict[str, Any]
                    told["ends"] = not isinstance(error, Exception)  # sys.exit(), gevent.Timeout
                    called, method = not calling.is_of_call(error), calling.method(error)
                    errors.append(dict(told, chain=_chain(error), called=called, method=method))
            else:
                done.append(clock() - began)
            finally:
                timeline.end(index, frame, clock(), failed)
                del frame  # it refers to itself

        self.greenlets = set(
            self._gevent.spawn(one, index, url)
            for index, url in enumerate(urls(self._spec["url"], run, count, delay))
        )
        opening = self._opening = Opening(2 * _LOOK_EVERY) if opens else None
        wait()
        self._gevent.joinall(list(self.greenlets))
        self._opening = None
        return {
            "run": run,
            "requests": count,
            "delay": delay,
            "wall": clock() - began,
            "cpu": cpu() - spent,
            "ready": self._thread.since()[1],
            "done": len(done),
            "errors": sum(kinds.values()),
            "kinds": kinds,
            "first": errors,
            "timeline": timeline.told(),
            "opening": opening.told() if opening is not None else None,
        }

    def _held(self, *seen):
        # type: (*Any) -> None
        self._timeline.held(*seen)

    def _look(self):
        # type: () -> None
        """Record where the greenlets wait, and the longest time in which this greenlet did not run."""
        last = clock()
        while self._looking:
            self._sleep(_LOOK_EVERY)
            now = clock()
            self._gap = max(self._gap, now - last)
            seen, waiting = {}, {}  # type: Dict[Any, int], Dict[int, Any]
            for greenlet in list(self.greenlets)[:_LOOK_AT]:
                frame = getattr(greenlet, "gr_frame", None)
                if frame is not None:
                    key = waiting[id(greenlet)] = tuple(frames.stack(frame)[:30])
                    seen[key] = seen.get(key, 0) + 1
            if self._opening is not None:
                self._opening.look(waiting)
            # Time in which the hub was held does not show where they wait.
            passed = min(now - last, 2 * _LOOK_EVERY)
            self._looked += passed
            for key, count in seen.items():
                self._parked[key] = self._parked.get(key, 0.0) + count * passed
                self._during[key] = self._during.get(key, 0.0) + passed
                self._most_parked[key] = max(self._most_parked.get(key, 0), count)
            last = now

    def _complete(self, result, watch, problem):
        # type: (Dict[str, Any], sampler.Sampler, Any) -> Dict[str, Any]
        ranked = sorted(self._parked.items(), key=lambda pair: -pair[1])[:20]
        result.update(
            problem=problem,
            held=watch.found(),
            gap=max(watch.gap, self._gap),
            seconds=clock() - self._began,
            looked=self._looked,
            scheduler=self._thread.known,
            timeline=self._timeline.told(),
            parked=[
                {
                    "stack": list(key),
                    "seconds": seconds,
                    "during": self._during.get(key, 0.0),
                    "most": self._most_parked.get(key, 0),
                }
                for key, seconds in ranked
            ],
        )
        return result


def timed_out(error):
    # type: (Dict[str, Any]) -> bool
    """Return whether a request failed with ``error`` for a time that was over."""
    names = [str(error["class"])] + [str(each) for each in error.get("chain") or []]
    return any(_TIMEOUT.search(each) for each in names + [str(error["text"])])


def _timed_out(told):
    # type: (Dict[str, Any]) -> bool
    """Return whether requests of a round failed, and all that are known did for a time that was over."""
    return bool(told["first"]) and all(timed_out(each) for each in told["first"])


def _is_at_rest(stack):
    # type: (Any) -> bool
    return any(spot[2] in ("sleep", "serve_forever") and "gevent" in str(spot[0]) for spot in stack)


def overlapped(result, spec):
    # type: (Dict[str, Any], Dict[str, Any]) -> bool
    """Return whether the requests plainly did not wait for each other, and none of them failed."""
    rounds, count, delay = result["rounds"], spec["requests"], spec["delay"]
    if any(each["errors"] for each in rounds):
        return False
    if spec["fixed"]:
        single = min([each["wall"] for each in rounds[1:3]] or [0.0])
        return bool(rounds) and rounds[-1]["wall"] < _OVERLAP * single
    if any(each["seconds"] - each["cpu"] > delay for each in result["held"]):
        return False
    grown = []
    for number in range(1, len(rounds)):
        before, after = rounds[number - 1], rounds[number]
        if after["requests"] == count and after["delay"] and not before["delay"]:
            grown.append((after["wall"] - after["ready"] - before["wall"] + before["ready"]) / delay)
    taken = [each["wall"] - each["cpu"] - each["ready"] for each in rounds if each["delay"]]
    return bool(grown) and min(grown) < _OVERLAP and min(taken) < (1 + (count - 1) / 3.0) * delay


def opened_slowly(result, spec):
    # type: (Dict[str, Any], Dict[str, Any]) -> bool
    """Return whether the pass that opens connections waited for far longer than one delay."""
    opens = [each for each in result["rounds"] if each["opening"] is not None]
    waited = [each["wall"] - each["cpu"] - each["ready"] for each in opens]
    return bool(waited) and waited[0] >= (1 + (spec["requests"] - 1) / 3.0) * spec["delay"]


def _gevent():
    # type: () -> Any
    try:
        import gevent
    except ImportError as error:
        raise Unusable("gevent cannot be imported in %s: %s" % (sys.executable, error))
    return gevent


def _name(error):
    # type: (BaseException) -> str
    name = "%s.%s" % (type(error).__module__, type(error).__name__)
    return name.replace("builtins.", "").replace("exceptions.", "", 1)


def _chain(error):
    # type: (BaseException) -> List[str]
    """Return the classes of the errors that led to ``error``."""
    found = []  # type: List[str]
    seen = error  # type: Any
    while seen is not None and len(found) < 10:
        seen = getattr(seen, "__cause__", None) or getattr(seen, "__context__", None)
        if seen is not None:
            found.append(_name(seen))
    return found


def _text(error):
    # type: (BaseException) -> str
    try:
        return str(error)[:500] + _inner(error)
    except Exception:  # on Python 2, the text may not be encodable
        return repr(error)[:500]


def _inner(error):
    # type: (BaseException) -> str
    """Return the errors of a group, to be added to its text; "" where it is none."""
    if not any(cls.__name__ == "BaseExceptionGroup" for cls in type(error).__mro__):
        return ""
    inner = getattr(error, "exceptions", ())[:_OF_A_GROUP]
    return ": " + "; ".join("%s: %s" % (type(each).__name__, _text(each)) for each in inner)


def _raised(error):
    # type: (BaseException) -> List[frames.Spot]
    """Return where it was raised, innermost first; shortened, as a RecursionError has thousands of
    frames."""
    trace = getattr(error, "__traceback__", None) or sys.exc_info()[2]
    spots = []  # type: List[frames.Spot]
    while trace is not None and len(spots) < 5000:
        code = trace.tb_frame.f_code
        if frames.kind(code) != "agent":
            spot = places.spot(trace.tb_frame, trace.tb_lineno, trace.tb_lasti)
            if spots[-1:] != [spot]:  # a recursive call counts once
                spots.append(spot)
        trace = trace.tb_next
    return spots[::-1][:30] + spots[:5]
