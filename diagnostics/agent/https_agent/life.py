"""Run the agent in a process: announce it, wait for the moment to probe, and report.

The controller is the process that started all this (``diagnostics.launch``). A report to it is a JSON file
in the outbox, written completely and then renamed. So no reader needs to be present, nothing can block, and
a fork or an exec does no harm.
"""

import gc
import json
import os
import re
import signal
import sys
import weakref

from . import (
    arrivals,
    choice,
    clocks,
    entrance,
    facts,
    fetchers,
    frames,
    main_end,
    native,
    pause,
    pool_threads,
    probe,
    recorder,
    remedies,
    sampler,
    sharing,
    trust,
    variables,
    whereabouts,
    wrapping,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, List, Optional, Tuple

    Fetch = Callable[[str], Any]

VARIABLE = entrance.VARIABLE
# The controller sends it when --after has passed; no other program is known to use it.
SIGNAL = signal.SIGRTMAX - 5 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
_WATCHES = 5.0  # seconds for which threads that seem to take turns are watched longer
_IMPORTS = 15.0  # seconds after which an import is regarded as the program itself
_NEW = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\btmp[a-z0-9_]{6,8}\b", re.I)
_ANOTHER = "it is not the process that was probed at first"


class Agent(object):
    """The agent of one process. ``spec``: the controller's instructions, see ``diagnostics.launch``."""

    def __init__(self, spec):
        # type: (Dict[str, Any]) -> None
        self.spec = spec
        self.record = recorder.record
        self._sent = 0
        self._pid = os.getpid()
        self._begun = False
        self._connected = False  # has tried HTTPS since gevent is in use
        self._fetch = None  # type: Optional[fetchers.Connecting]  # how it fetched then
        # How its threads that are no greenlets fetched (None: not those of gevent's pool), and where.
        self._threads = None  # type: Optional[Tuple[Any, Any]]
        self._tasks = None  # type: Optional[sharing.Sharing]  # of that pool
        self._pool_threads = pool_threads.PoolThreads()  # where they were seen
        # How many clients like the one that is measured the program has, and another fetch where that is
        # not known.
        self._sharing = None  # type: Optional[sharing.Sharing]
        self._clients = []  # type: List[Dict[str, Any]]  # that the program has besides the measured one
        self._second = None  # type: Optional[Tuple[Fetch, str]]
        # What the program may fetch with as well as with what is measured, which must be concurrent, too.
        self._too = None  # type: Optional[Tuple[Fetch, str]]
        self._made = []  # type: List[Any]  # where the client was made
        # Where the two adapters are mounted that are measured, of a session that has fetched nothing yet.
        self._prefixes = []  # type: List[str]
        self._arrivals = None  # type: Optional[arrivals.Arrivals]  # at connections, while it is observed
        # How it connected with none of the clients that are loaded, and whether in a greenlet; it is
        # measured only where the program's greenlets are not seen to use such a client.
        self._besides = None  # type: Optional[fetchers.Connecting]
        self._besides_in_greenlet = False
        # What else than the client that is measured the program fetches with, see `_tell_apart`.
        self._unlike = None  # type: Optional[Dict[str, Any]]
        self._broken = False  # its end is a RecursionError of ssl
        self._left = None  # type: Optional[Dict[str, Any]]  # what the program had done, where it ends
        self._asked = 0.0  # time of the controller's first signal
        self._scheduled = False  # a greenlet was started to probe
        self._importing = None  # type: Optional[Dict[str, Any]]  # where, if it is probed during an import
        # The greenlets that existed before the probe. Weak references, since an id may be reused later.
        self._bystanders = []  # type: List[weakref.ref[Any]]
        self._running = None  # type: Optional[probe.Probe]
        self._pause = None  # type: Optional[pause.Pause]  # of the program, while it is probed

    # reports

    def tell(self, kind, **fields):
        # type: (str, **Any) -> None
        """Write a report into the outbox."""
        self._heed_fork()
        self._sent += 1
        fields.update(kind=kind, pid=os.getpid(), ppid=os.getppid(), executable=sys.executable)
        fields.setdefault("environment", variables.news())
        text = json.dumps(fields, default=repr)
        # The controller reads reports in the order of their names. The count restarts after an exec, so
        # the time comes first.
        name = "%020d-%05d-%s-%d.json" % (clocks.clock() * 1e6, self._sent, kind, os.getpid())
        path = os.path.join(self.spec["outbox"], name)
        if not os.path.isdir(self.spec["outbox"]):
            return  # the controller has ended
        out = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            # The controller compares this time with the kernel's time stamp of the file.
            os.write(out, (text[:-1] + ', "clock": %r}' % clocks.clock()).encode("utf-8"))
        finally:
            os.close(out)
        os.rename(path + ".part", path)

    def failed(self, stage, text, **fields):
        # type: (str, str, **Any) -> None
        """Report that the probe cannot be run, and why."""
        self.tell(
            "failed", stage=stage, text=text, seen=self.record.seen(), facts=facts.collect(), **fields
        )

    # the probe

    def measure(self, fetch, name):
        # type: (Optional[Fetch], str) -> None
        """Probe with ``fetch``, or with a general one if that is None, and report."""
        general = fetch is None
        foreign = fetchers.foreign() if general else []
        if general and not (self._connected or self.record.tried) and self.record.off_sockets is not None:
            # Any other client than its own would say nothing about this program.
            self.failed("off-sockets", "", spot=self.record.off_sockets)
            return
        try:
            how, name = (fetch, name) if fetch is not None else fetchers.general(self.options())
        except fetchers.Unusable as error:
            self.failed("set-up", str(error))
            return
        target = self.spec["target"]
        tried = self._connected or self.record.tried  # by the program: the probe has not begun
        untried = not (foreign or tried)
        unseen = untried and not self._prefixes and "command" in target
        early = self._early_context() if untried and (general or "command" in target) else None
        spec = dict(self.spec, name=name)
        recorder.look()
        before = facts.collect()

        def report(result, kind="measured"):
            # type: (Dict[str, Any], str) -> None
            self._report(result, before, tried, kind, foreign=foreign, unseen=unseen)

        trust.leave_out_proxies(spec)
        try:
            measured = self._running = probe.Probe(how, spec)
            clocks.compare(sampler._sleep)
            self.tell("measuring")
            waits = self._pause.end if self._pause is not None else None
            if not general and "app" in self.spec["target"]:
                measured.on_warm = lambda result: report(result, "warm")
            result = measured.run(report, lambda: self.tell("starved"), waits)
            overlapped = not result["problem"] and probe.overlapped(result, spec)
            # It may be the client that lets one through at a time, and it may not be shared.
            second, key = self._second, "other"
            # Where the opening of connections took long, they may have waited for each other in that.
            if overlapped and not (second is not None and probe.opened_slowly(result, spec)):
                second, key = self._too, "too"
            if second is not None and not result["problem"]:
                self.tell("again")
                again = dict(spec, run=spec["run"] + "own", name=second[1])
                self._running = probe.Probe(second[0], again)

                def both(other):
                    # type: (Dict[str, Any]) -> None
                    report(dict(result, **{key: other}))

                both(self._running.run(both, lambda: self.tell("starved"), waits))
                return
            if overlapped and early is not None:
                result = self._with_context(early, result, spec, report)
            report(result)
        except fetchers.Unusable as error:
            self.failed("probe", str(error))

    def _report(self, result, before, tried, kind="measured", **more):
        # type: (Dict[str, Any], Dict[str, Any], bool, str, **Any) -> None
        """Report a result; ``before``: the facts from before it, ``tried``: the program has tried HTTPS."""
        result.update(more)
        result["unlike"] = self._unlike
        result["importing"] = self._importing
        result["off_sockets"] = self.record.off_sockets
        result["made"] = self._made
        result["prefixes"] = self._prefixes
        result["clients"] = self._clients
        if self._sharing is not None:
            result["sharing"] = vars(self._sharing)
        result["applied"] = sorted(set(remedies.applied))
        # Include what the first fetch changed in the process: it may have patched.
        now = facts.refreshed(before)
        seen = self.record.seen()
        told = {"argv": _argv(), "left": self._left, "connected": tried}
        self.tell(kind, result=result, seen=seen, facts=now, **told)

    def _early_context(self):
        # type: () -> Optional[Tuple[Fetch, Dict[str, str]]]
        """Return the fetch with a context from before the patching, of a program that has fetched nothing.

        Another client, which the program was not seen to use, says nothing about it. Where there is an
        event loop, that may be what uses the context.
        """
        if self.record.off_sockets is not None:
            return None
        return fetchers.of_early_context(self.options())

    def _with_context(self, early, result, spec, report):
        # type: (Tuple[Fetch, Dict[str, str]], Dict[str, Any], Dict[str, Any], Any) -> Dict[str, Any]
        """Measure once more, with the context of ``early``; return ``result`` where that works."""
        self.tell("again")
        again = dict(spec, run=spec["run"] + "early", name="urllib with " + early[1]["name"])
        running = self._running = probe.Probe(early[0], again)
        waits = self._pause.end if self._pause is not None else None
        found = running.run(lambda partial: report(result), lambda: self.tell("starved"), waits)
        return dict(found, early=early[1]) if _fails_of_context(found) else result

    # a process that was started for a style or an application

    def answer_in_set_up(self):
        # type: () -> None
        """Say where the main greenlet is when the controller asks, until the set-up is complete."""

        def on_signal(number, frame):
            # type: (int, Optional[FrameType]) -> None
            self.tell("where", **whereabouts.told(frame))

        signal.signal(SIGNAL, on_signal)
        whereabouts.dump_at_signal(self.spec["outbox"])

    def run_told(self):
        # type: () -> None
        """Set up the style or the application, then probe."""
        target, options = self.spec["target"], self.options()
        if "startup" in target:
            self.tell("recorded", seen=self.record.seen())
            return
        fetch = None  # type: Optional[Fetch]
        try:
            if "style" in target:
                fetch, name = self._set_up_style(target["style"], dict(options, root=target["root"]))
            else:
                fetch, name = fetchers.application(target["app"], options)
        except fetchers.Unusable as error:
            self.failed("target" if isinstance(error, fetchers.NoSuchTarget) else "set-up", str(error))
            return
        except BaseException as error:
            text = "%s: %s" % (type(error).__name__, probe._text(error))
            module = target.get("app", "").partition(":")[0]
            self.failed("import", text, missing=_is_missing(error, module), stack=probe._raised(error))
            return
        self.tell("ready")
        remedies.reach("fetch")
        self._note_os_exit()
        self.measure(fetch, name)

    def _set_up_style(self, name, options):
        # type: (str, Dict[str, Any]) -> Tuple[Fetch, str]
        remedies.reach("set-up")
        return fetchers.style(name, options), name

    def options(self):
        # type: () -> Dict[str, Any]
        """Return the options of the fetches."""
        spec = self.spec
        return {
            "verify": spec["verify"],
            "limit": spec["limit"],
            "url": spec.get("url"),
            "own": not spec.get("fixed"),  # neither is there where only the start is recorded
        }

    # a process of a command

    def wait_in_command(self):
        # type: () -> None
        """Arrange to probe at a greenlet's connection, at the signal, or at exit, where ``choice``
        permits."""
        import atexit

        signal.signal(SIGNAL, self._on_signal)
        whereabouts.dump_at_signal(self.spec["outbox"])
        atexit.register(self._at_exit)
        main_end.call(self._at_main_end)
        self.record.on_connection = self._on_connection
        self.record.on_request = self._on_request
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)
        else:
            self._note_forks()
        self.record.on_import["gevent"] = lambda module: self.tell("gevent")
        self.record.on_import["multiprocessing.util"] = self._note_ends
        self._note_os_exit()
        choice.note_overseers(self.record.on_import)
        self.tell("hello", argv=_argv(), forked=False)

    def _note_forks(self):
        # type: () -> None
        fork = os.fork

        def forking():
            # type: () -> int
            pid = fork()
            if not pid:
                self._after_fork()
            return pid

        os.fork = forking

    def _note_ends(self, module):
        # type: (Any) -> None
        """Catch the exit of a process of multiprocessing, which does not run ``atexit``."""
        wrapping.wrap(module, "_exit_function", lambda frame, arguments: self._at_exit())

    def _note_os_exit(self):
        # type: () -> None
        wrapping.wrap(os, "_exit", lambda frame, arguments: self._at_os_exit(frame))

    def _at_os_exit(self, frame):
        # type: (Optional[FrameType]) -> None
        """Handle ``os._exit``, with which a forked child often ends without ``atexit``.

        A child that failed to execute another program, or that started a daemon, ends in the same way, but
        has tried no HTTPS. A client that does not like the probe's answer may end its process so, too.
        """
        if self._is_in_probe():
            self.failed("ended", "", spot=frames.user(frame) or frames.caller(frame))
            return
        if "command" not in self.spec["target"]:
            return
        if self._connected or choice.never_serves():
            self._at_exit()
            return
        news = variables.news()
        if news:
            self.tell("leaves", environment=news)

    def _is_in_probe(self):
        # type: () -> bool
        """Return whether a fetch of the probe is what runs, which cannot wait for the end of the probe."""
        return self._running is not None and self._running.is_of(choice.current())

    def _heed_fork(self):
        # type: () -> None
        """Notice that this is a child that C code, such as uWSGI's, forked without Python's hooks."""
        if self._pid != os.getpid() and "command" in self.spec["target"]:
            self._after_fork()

    def _after_fork(self):
        # type: () -> None
        self._pid = os.getpid()
        self._connected, self._fetch, self._asked, self._scheduled = False, None, 0.0, False
        self._threads = self._tasks = self._besides = self.record.off_sockets = None
        self._besides_in_greenlet = False
        self._pool_threads = pool_threads.PoolThreads()
        native.begin()
        self.tell("hello", argv=_argv(), forked=True, gevent="gevent" in sys.modules)

    def _is_chosen(self):
        # type: () -> bool
        """Return whether this may be the process that was probed before.

        With ``chosen``, it has the same arguments: remedies must not change which process is probed.
        """
        chosen = self.spec.get("chosen")
        # Older Pythons do not have sys.argv yet while `site` runs.
        if chosen is None or not hasattr(sys, "argv"):
            return True
        # Where the remedy is another command, the name of the program may be another, too.
        begin = 0 if chosen[:1] != [""] else 1
        return _lasting(chosen[begin:]) == _lasting(_argv()[begin:])

    def _claim(self):
        # type: () -> bool
        """Return whether this process is the one that probes; there is one for each run."""
        if self._begun:
            return False
        self._begun = True
        try:
            os.close(os.open(os.path.join(self.spec["outbox"], "claim"), os.O_CREAT | os.O_EXCL))
        except OSError:
            return False
        self.tell("probing")
        return True

    def _on_connection(self, frame, wrapped=None):
        # type: (Optional[FrameType], Any) -> None
        self._heed_fork()
        if self._begun:
            self._delay_connection(frame)
            return
        if not self._is_chosen() or self._is_of_a_thread(frame, wrapped) or not choice.uses_gevent():
            return
        if not self._connected:
            self._connected = True
            self.tell("connected")
        self.record.reached = frames.module_level(frame)
        connecting = fetchers.Connecting(frame, choice.current(), wrapped)
        besides = connecting.is_besides()
        if choice.in_greenlet() and not choice.obstacle(frame):
            if besides and not self._besides_in_greenlet:
                # It may be a check of health, before its client has made a request: look at it, and go on.
                self._besides, self._besides_in_greenlet, self._begun = connecting, True, True
                self._probe(frame, connecting)
            elif not besides and self._claim():
                self._probe(frame, connecting)
        # Not in a greenlet, or still in the set-up: continue, and remember how the process fetches.
        elif besides or connecting.is_raw():
            self._besides = self._besides or connecting
        elif connecting.fetch(self.options()) is not None:
            self._fetch = connecting

    def _on_request(self, frame):
        # type: (Optional[FrameType]) -> None
        """Probe, or wait for the probe, as at a connection: where a kept one serves all, none is opened."""
        if self._arrivals is not None and self._arrivals.has(choice.current()):
            return  # it was let on: a login may be of two requests, and others wait for the end of both
        if self._begun or choice.in_greenlet():
            self._on_connection(frame)
        elif native.is_here():
            pool = native.pool_of(frame)
            if pool is not None:
                self._pool_threads.connects(frame, pool)
            self._note_tasks(pool)

    def _is_of_a_thread(self, frame, wrapped):
        # type: (Optional[FrameType], Any) -> bool
        """Return whether a thread that is no greenlet connects; remember how it fetches for the user."""
        if not native.is_here() or "gevent" not in sys.modules:
            return False
        pool, found = native.pool_of(frame), None
        user = frames.user(frame)
        if user is None:
            # It calls a function that it was given: show who made the client, or waits for the thread.
            given = native.given(frame)
            if given is None:
                return True
            made = fetchers.Connecting(frame, None).made()
            user = made[0] if made else native.awaited() or given
        connecting = fetchers.Connecting(frame, None, wrapped)
        if pool is not None:
            self._pool_threads.connects(frame, pool)
            self._connected = True
            self._note_tasks(pool)
            if connecting.is_besides() and self._threads is not None and self._threads[0] is not None:
                return True  # it may be a check of health beside the client
            fetch, name = connecting.fetch(self.options()) or fetchers.general(self.options())
            found = native.through(pool, fetch), "%s in gevent.threadpool.ThreadPool" % name
        if self._threads is None or found is not None:
            self._threads = found, user
        return True

    def _note_tasks(self, pool):
        # type: (Any) -> None
        """Note how many tasks ``pool`` has at once: more than it has threads wait for each other."""
        if pool is not None and (self._tasks is None or len(pool) > self._tasks.seen):
            evidence = sharing.SHARED if len(pool) > pool.maxsize else sharing.UNCLEAR
            self._tasks = sharing.Sharing(1, False, evidence, len(pool))

    def _delay_connection(self, frame):
        # type: (Optional[FrameType]) -> None
        """Delay the application's other connections to the end, so that they do not slow the probe down."""
        current = choice.current()
        if current is choice.hub() or native.is_here():
            if self._running is not None:
                self._running.connects = True
            return
        if self._arrivals is not None:
            came = fetchers.Connecting(frame, current)
            if self._besides is None and came.is_besides():
                self._besides, self._besides_in_greenlet = came, True
            self._arrivals.stop(current, frame)
            return
        stands_by = any(each() is current for each in self._bystanders)
        if stands_by or (self._running is not None and not self._running.began(current)):
            if self._pause is not None:
                self._pause.wait(self.spec["limit"])
        elif self._running is not None:
            self._running.connects = True

    def _on_signal(self, number, frame):
        # type: (int, Optional[FrameType]) -> None
        self._heed_fork()
        if self._begun:
            if self._arrivals is not None:
                self.tell("later", why="its greenlets are watched still")
            return
        self._asked = self._asked or clocks.clock()
        if self._postpones(frame):
            return
        self.record.reached = frames.module_level(frame)
        if choice.hub() is not None and not self._scheduled:
            # Do not probe in the code that the signal interrupted: it may hold a lock.
            import gevent

            self._scheduled = True
            self.tell("later", why="it does not return to its hub")
            gevent.spawn(self._scheduled_probe)
        elif (choice.hub() is None or choice.current() is not choice.hub()) and self._claim():
            self._probe()  # it has not returned to its hub since

    def _postpones(self, frame):
        # type: (Optional[FrameType]) -> bool
        """Return whether this process must not be probed yet; tell the controller why."""
        self._importing = None
        why = choice.obstacle(frame) if self._is_chosen() else _ANOTHER
        if why.startswith(choice.IMPORTS) and clocks.clock() - self._asked > _IMPORTS:
            # The program works during an import, or that never returns.
            self._importing = dict(whereabouts.told(frame), module=why[len(choice.IMPORTS) :])
            why = "" if choice.uses_gevent() else choice.UNUSED
        why = why or sampler.no_threads()
        if self._pool_threads.is_undecided and clocks.clock() - self._asked < _WATCHES:
            why = why or "its threads are watched still"
        if why:
            self.tell("later", why=why, **whereabouts.told(frame))
        return bool(why)

    def _scheduled_probe(self):
        # type: () -> None
        self._scheduled = False
        if not self._begun and not self._postpones(None) and self._claim():
            self._probe()

    def _at_exit(self):
        # type: () -> None
        if self._begun and self._pause is not None and not self._is_in_probe():
            self._pause.let_end()
        if self._begun:
            return  # it was more than looked at
        value = getattr(sys, "last_value", None)
        text = "%s: %s" % (type(value).__name__, probe._text(value)) if value is not None else ""
        why = choice.obstacle(None) if self._is_chosen() else _ANOTHER
        if choice.never_serves() and not self._connected:
            why = choice.UNSERVED
        if why or (text and not self._connected and not _in_ssl(value)):
            raised = {}  # type: Dict[str, Any]
            if value is not None:
                seen, now = self.record.seen(), facts.collect()
                raised = {"stack": probe._raised(value), "seen": seen, "facts": now}
            self.tell("over", text=text, why=why, **raised)
            return
        why = sampler.no_threads()
        if why:
            self.tell("over", text=text, why=why)
            return
        self.tell("ends")
        if not self._await_decision() or not self._claim():
            return
        threading = sys.modules.get("threading")
        if getattr(threading, "_SHUTTING_DOWN", False):
            # The application has ended, but the probe may need threads to look up names.
            threading._SHUTTING_DOWN = False  # type: ignore[union-attr]
        # Where a client could not be made, its requests would have failed: that is measured.
        broken = self._broken or (value is not None and _in_ssl(value))
        self._left = {"connected": self._connected or self.record.tried, "broken": broken}
        self._probe()

    def _at_main_end(self, error):
        # type: (Optional[BaseException]) -> None
        """Probe at the end of the main module, where a probe at exit would be too late.

        An exception other than SystemExit that ends it before any HTTPS connection is left to be reported
        at exit.
        """
        self._broken = error is not None and _in_ssl(error)
        if error is None or isinstance(error, SystemExit) or self._connected or self._broken:
            self._at_exit()

    def _await_decision(self):
        # type: () -> bool
        """Wait for the controller, which knows the other processes; return whether this one may probe."""
        outbox = self.spec["outbox"]
        answer = os.path.join(outbox, "answer-%d" % os.getpid())
        while os.path.isdir(outbox):
            if os.path.exists(answer):
                with open(answer) as source:
                    return source.read() == "probe"
            sampler._sleep(0.01)
        return False

    def _probe(self, frame=None, connecting=None):
        # type: (Optional[FrameType], Optional[fetchers.Connecting]) -> None
        """Probe at the connection in ``frame``, of which ``connecting`` is; else as it fetched before.

        Where most of the program does not use a client that is loaded, it goes on, see ``_besides``.
        """
        options = self.options()
        options["waits"] = self._go_on
        found, spot = self._threads or (None, None)
        looks = connecting is not None and connecting is self._besides
        if not looks:
            self._pool_threads.end()
        if connecting is None:
            found = self._remembered(options)
            if found is None and spot is not None:
                self.failed("threads", "", spot=spot)
                return
        if choice.hub() is None:
            self._note_bystanders()
            self.measure(*(found or (None, "")))
            return

        def measure():
            # type: () -> None
            fetch = found
            if connecting is not None:
                self._observe(connecting)
                guard()
                if looks and not self._has_come_to_known(connecting):
                    return
                fetch = self._fetch_like(connecting, options) or found
            if fetch is None and spot is not None:
                self.failed("threads", "", spot=spot)
                return
            self._note_bystanders()
            self.measure(*(fetch or (None, "")))

        stopped = choice.current()
        self._pause = pause.Pause()
        if connecting is not None:
            # From now on: the probe's greenlet is not the next to run.
            self._arrivals = arrivals.Arrivals(self._pause, stopped, frame, self.spec["limit"])
            guard = self._guard()
        self._pause.during(measure, stops=frame is not None)

    def _guard(self):
        # type: () -> Callable[[], None]
        """Return what ends a watch that reports where the program blocks the hub while it is observed."""
        recorder.look()
        before = facts.collect()

        def report(result):
            # type: (Dict[str, Any]) -> None
            self._report(result, before, True, foreign=[], unseen=False)

        return probe.Probe(lambda url: None, self.spec).guard(report)

    def _remembered(self, options):
        # type: (Dict[str, Any]) -> Optional[Tuple[Fetch, str]]
        """Return the fetch that is like what the program did before; None if none can be made."""
        found = None  # type: Optional[Tuple[Fetch, str]]
        if self._fetch is not None and self._fetch.is_besides():
            self._besides = self._besides or self._fetch  # a client was loaded since
            self._fetch = None
        in_threads = self._threads is not None and self._threads[0] is not None
        if self._besides is not None and self._besides_in_greenlet and not in_threads:
            found = self._of_greenlets(self._besides, options)
            if found is not None:
                return found
        self._tell_apart(self._besides, None, alone=False)
        if self._fetch is not None:
            found = self._fetch.fetch(options)
            self._fetch.look_at([])
            self._note(self._fetch, options)
        if found is None and self._threads is not None:
            found, spot = self._threads
            if self._tasks is not None and found is not None:
                self._sharing, self._tasks.at = self._tasks, spot
                self._tasks.waiting, self._tasks.using = (
                    self._pool_threads.waiting,
                    self._pool_threads.using,
                )
            return found
        if found is None and not self._connected:
            found = self._of_modules(options)
        # One that goes on, and did so before its greenlets began, may have fetched its settings.
        if found is None and self._besides is not None and (self._besides_in_greenlet or self._left):
            found = self._besides.fetch(options)
            self._note(self._besides, options)
            self._tell_apart(self._besides, found, alone=True)
        return found

    def _of_greenlets(self, besides, options):
        # type: (fetchers.Connecting, Dict[str, Any]) -> Optional[Tuple[Fetch, str]]
        """Return the fetch of greenlets that were seen to connect with none of the loaded clients.

        What they use is measured first. A client that only the main greenlet has used, or that is loaded in
        a program that goes on, may be what it fetches with later: it must be concurrent, too.
        """
        found = besides.fetch(options)
        self._note(besides, options)
        other = self._fetch.fetch(options) if self._fetch is not None else None
        self._tell_apart(besides, found, alone=other is None)
        if other is None and found is not None and not self._left and not besides.is_raw():
            known = fetchers.of_modules(options)
            other = known[0][0] if known else fetchers.general(options)
        self._too = other if found is not None else None
        return found

    def _fetch_like(self, connecting, options):
        # type: (fetchers.Connecting, Dict[str, Any]) -> Optional[Tuple[Fetch, str]]
        """Return the fetch that is like that of the greenlets that were observed."""
        self._note(connecting, options)
        found = connecting.fetch(options)
        if self._besides is not None or (found is None and self._threads is not None):
            self._tell_apart(self._besides, None, alone=False)
        else:
            self._tell_apart(connecting, found, alone=not fetchers.has_known())
        return found

    def _of_modules(self, options):
        # type: (Dict[str, Any]) -> Optional[Tuple[Fetch, str]]
        """Return the fetch of a program that has fetched nothing yet; note the second, if there is one."""
        known = fetchers.of_modules(options)
        if len(known) > 1:
            self._second, self._prefixes = known[1][0], [prefix for _, prefix in known]
        return known[0][0] if known else None

    def _has_come_to_known(self, connecting):
        # type: (fetchers.Connecting) -> bool
        """Return whether to probe where the program was looked at, since most use a client that is loaded.

        Otherwise it goes on as if it had not been looked at.
        """
        self._begun = False
        if not connecting.is_known() or not self._claim():
            return False
        self._pool_threads.end()
        return True

    def _tell_apart(self, connecting, found, alone):
        # type: (Optional[fetchers.Connecting], Any, bool) -> None
        """Note what is not measured of a program that fetches as ``connecting``, copied as ``found``.

        ``alone``: it was not seen to use any other client.
        """
        self._unlike = None
        if connecting is not None and (found is None or connecting.is_raw()):
            self._unlike = {"at": connecting.at, "others": not alone, "copied": found is not None}

    def _observe(self, connecting):
        # type: (fetchers.Connecting) -> None
        """Let the program's other greenlets go on until they connect."""
        assert self._arrivals is not None
        try:
            self._arrivals.observe(connecting, self.spec["requests"])
        except Exception:  # what the application's objects raise; its own request must not fail of it
            pass
        self._arrivals = None

    def _note(self, connecting, options):
        # type: (fetchers.Connecting, Dict[str, Any]) -> None
        """Note how many clients the program has, and what to measure, too, where that is not known."""
        self._sharing, self._second = connecting.seen(), connecting.with_own(options)
        self._made = connecting.made()
        self._clients = connecting.besides()

    def _note_bystanders(self):
        # type: () -> None
        greenlet = getattr(sys.modules.get("greenlet"), "greenlet", None)
        if greenlet is not None:
            # Not isinstance(): it reads __class__ of objects that load themselves when they are looked at.
            greenlets = [each for each in gc.get_objects() if issubclass(type(each), greenlet)]
            self._bystanders = [weakref.ref(each) for each in greenlets]

    def _go_on(self):
        # type: () -> None
        if self._pause is not None:
            self._pause.end()


def _fails_of_context(result):
    # type: (Dict[str, Any]) -> bool
    """Return whether all requests failed since their context is none of gevent's: no server refused it."""
    kinds = [kind for each in result["rounds"] for kind in each["kinds"]]
    return bool(kinds) and all(kind in ("TypeError", "RecursionError", "RuntimeError") for kind in kinds)


def _in_ssl(error):
    # type: (Any) -> bool
    """Return True for the RecursionError of a context that was imported before patching.

    A client that is created while the program starts then ends the program. The requests that it would have
    made fail in the same way, so they can be probed.
    """
    if "recursion" not in probe._text(error):
        return False
    return any(os.path.basename(spot[0]) == "ssl.py" for spot in probe._raised(error))


def _argv():
    # type: () -> Any
    return list(getattr(sys, "argv", []))


def _lasting(argv):
    # type: (Any) -> List[str]
    """Return arguments without what is new in every run: the names of temporary files, of a kernel's."""
    return [_NEW.sub("", each) for each in argv]


def _is_missing(error, module):
    # type: (BaseException, str) -> bool
    """Return whether ``module`` itself could not be found, not something that it imports."""
    if not isinstance(error, ImportError):
        return False
    name = getattr(error, "name", None) or str(error).rpartition(" ")[2].strip("'\"")
    return bool(name) and (module == name or module.startswith(name + "."))


def read_spec():
    # type: () -> Optional[Dict[str, Any]]
    """Return the controller's instructions for this process; None if there is no controller."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        with open(path) as source:
            spec = json.load(source)  # type: Dict[str, Any]
    except (IOError, ValueError):
        return None  # the controller has ended, and the variable is left in an environment
    return spec


def begin(spec):
    # type: (Dict[str, Any]) -> Agent
    """Start to record, and return the agent."""
    remedies.prepare(spec["remedies"], recorder.record)
    trust.prepare(spec, recorder.record)
    recorder.install()
    return Agent(spec)
