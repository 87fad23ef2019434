"""The agent's life in a process: says hello, waits for the moment to probe, reports.

A report is a file of JSON in the outbox, written whole and then renamed: nobody has to be listening,
nothing can block, and a fork or an exec does not matter.
"""

import gc
import json
import os
import signal
import sys
import time
import weakref

from . import choice, facts, fetchers, frames, main_end, probe, recorder, remedies, sampler, wrapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, List, Optional, Tuple

    Fetch = Callable[[str], Any]

VARIABLE = "HTTPS_DIAGNOSTICS"
# The judge sends it when --after has passed; nobody else uses it.
SIGNAL = signal.SIGRTMAX - 5 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
_IMPORTS = 15.0  # seconds after which an import is taken for the program itself
_ANOTHER = "it is not the process that was probed at first"


class Agent(object):
    """One for each process. ``spec`` is what the judge wants, see ``diagnostics.launch``."""

    def __init__(self, spec):
        # type: (Dict[str, Any]) -> None
        self.spec = spec
        self.record = recorder.record
        self._sent = 0
        self._begun = False
        self._connected = False  # has tried HTTPS since gevent is in use
        self._fetch = None  # type: Optional[Tuple[Fetch, str]]  # how it did
        self._asked = 0.0  # when the judge did first
        self._scheduled = False  # a greenlet is to probe
        # Greenlets that were there before the probe, weakly: an id is used again by one that comes later.
        self._bystanders = []  # type: List[weakref.ref[Any]]

    # reports

    def tell(self, kind, **fields):
        # type: (str, **Any) -> None
        """Put a report into the outbox."""
        self._sent += 1
        fields.update(kind=kind, pid=os.getpid(), ppid=os.getppid(), executable=sys.executable)
        # In the order of their names, which the judge reads them in; an exec begins to count anew.
        name = "%020d-%05d-%s-%d.json" % (time.time() * 1e6, self._sent, kind, os.getpid())
        path = os.path.join(self.spec["outbox"], name)
        if not os.path.isdir(self.spec["outbox"]):
            return  # the judge has gone
        out = os.open(path + ".part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(out, json.dumps(fields, default=repr).encode("utf-8"))
        finally:
            os.close(out)
        os.rename(path + ".part", path)

    def failed(self, stage, text, **fields):
        # type: (str, str, **Any) -> None
        """The probe cannot be run, and why."""
        self.tell(
            "failed", stage=stage, text=text, seen=self.record.seen(), facts=facts.collect(), **fields
        )

    # the probe

    def measure(self, fetch, name):
        # type: (Optional[Fetch], str) -> None
        """Probe with ``fetch``, or a general one, and report."""
        foreign = [] if fetch is not None else fetchers.foreign()
        try:
            how, name = (fetch, name) if fetch is not None else fetchers.general(self.options())
        except fetchers.Unusable as error:
            self.failed("set-up", str(error))
            return
        spec = dict(self.spec, name=name)
        recorder.look()
        before = facts.collect()
        self.record.probing = True

        def report(result):
            # type: (Dict[str, Any]) -> None
            result["foreign"] = foreign
            result["applied"] = sorted(set(remedies.applied))
            # What the first fetch does to the process counts: it may be the one that patches.
            now = facts.refreshed(before)
            self.tell("measured", result=result, seen=self.record.seen(), facts=now, argv=_argv())

        try:
            report(probe.Probe(how, spec).run(report, lambda: self.tell("starved")))
        except fetchers.Unusable as error:
            self.failed("probe", str(error))

    # one that is told what to check

    def run_told(self):
        # type: () -> None
        """Set up as a style or an application, then probe."""
        target, options = self.spec["target"], self.options()
        if "startup" in target:
            self.tell("recorded", seen=self.record.seen())
            return
        fetch = None  # type: Optional[Fetch]
        try:
            if "style" in target:
                fetch, name = self._styled(target["style"], dict(options, root=target["root"]))
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
        self.measure(fetch, name)

    def _styled(self, name, options):
        # type: (str, Dict[str, Any]) -> Tuple[Fetch, str]
        remedies.reach("set-up")
        return fetchers.style(name, options), name

    def options(self):
        # type: () -> Dict[str, Any]
        """What the fetches need."""
        return {"verify": self.spec["verify"], "limit": self.spec["limit"]}

    # one that waits in a command

    def wait_in_command(self):
        # type: () -> None
        """Probe at a connection of a greenlet, at the signal, or at the end: where ``choice`` agrees."""
        import atexit

        signal.signal(SIGNAL, self._signalled)
        atexit.register(self._ends)
        main_end.call(self._main_ends)
        self.record.on_connection = self._connects
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
        else:
            self._note_forks()
        self.record.on_import["gevent"] = lambda module: self.tell("gevent")
        self.record.on_import["multiprocessing.util"] = self._note_ends
        wrapping.wrap(os, "_exit", lambda frame, arguments: self._exits())
        choice.note_overseers(self.record.on_import)
        self.tell("hello", argv=_argv(), forked=False)

    def _note_forks(self):
        # type: () -> None
        fork = os.fork

        def forking():
            # type: () -> int
            pid = fork()
            if not pid:
                self._forked()
            return pid

        os.fork = forking

    def _note_ends(self, module):
        # type: (Any) -> None
        """A process of multiprocessing ends without ``atexit``."""
        wrapping.wrap(module, "_exit_function", lambda frame, arguments: self._ends())

    def _exits(self):
        # type: () -> None
        """A child of a fork often ends without ``atexit``. So does one that could not become another
        program, or that has made a daemon: these have tried no HTTPS."""
        if self._connected:
            self._ends()

    def _forked(self):
        # type: () -> None
        self._connected, self._fetch, self._asked, self._scheduled = False, None, 0.0, False
        self.tell("hello", argv=_argv(), forked=True, gevent="gevent" in sys.modules)

    def _fits(self):
        # type: () -> bool
        """Whether this may be the process that was probed before; remedies do not change the choice."""
        chosen = self.spec.get("chosen")
        # Older Pythons have no sys.argv while `site` runs.
        return chosen is None or not hasattr(sys, "argv") or chosen == _argv()

    def _claim(self):
        # type: () -> bool
        """Whether this process is the one that probes: one for each run."""
        if self._begun:
            return False
        self._begun = True
        try:
            os.close(os.open(os.path.join(self.spec["outbox"], "claim"), os.O_CREAT | os.O_EXCL))
        except OSError:
            return False
        self.tell("probing")
        return True

    def _connects(self, frame):
        # type: (FrameType) -> None
        if self._begun:
            self._stand_aside()
            return
        if not self._fits() or not choice.uses_gevent():
            return
        if not self._connected:
            self._connected = True
            self.tell("connected")
        self.record.reached = frames.module_level(frame)
        if choice.in_greenlet() and not choice.obstacle(frame):
            if self._claim():
                self._go(frame)
        else:
            # The beginning of its work, or a part of its set-up: go on, and remember how it fetches.
            self._fetch = fetchers.of_connection(frame, self.options()) or self._fetch

    def _stand_aside(self):
        # type: () -> None
        """The application's other connections wait for the end, so that they do not weigh on the probe."""
        current = choice.current()
        if current is choice.hub() or not any(each() is current for each in self._bystanders):
            return
        import gevent

        gevent.sleep(self.spec["limit"])

    def _signalled(self, number, frame):
        # type: (int, Optional[FrameType]) -> None
        if self._begun:
            return
        self._asked = self._asked or sampler.clock()
        if self._refuses(frame):
            return
        self.record.reached = frames.module_level(frame)
        if choice.hub() is not None and not self._scheduled:
            # Not in the midst of whatever the signal interrupted, which may hold a lock.
            import gevent

            self._scheduled = True
            self.tell("later", why="it does not come back to its hub")
            gevent.spawn(self._scheduled_probe)
        elif (choice.hub() is None or choice.current() is not choice.hub()) and self._claim():
            self._go(None)  # it does not come back to its hub

    def _refuses(self, frame):
        # type: (Optional[FrameType]) -> bool
        """Whether this process is not to be probed yet; the judge is told why."""
        why = choice.obstacle(frame) if self._fits() else _ANOTHER
        if why.startswith(choice.IMPORTS) and sampler.clock() - self._asked > _IMPORTS:
            why = "" if choice.uses_gevent() else choice.UNUSED  # its work is done by an import
        why = why or sampler.no_threads()
        if why:
            self.tell("later", why=why)
        return bool(why)

    def _scheduled_probe(self):
        # type: () -> None
        self._scheduled = False
        if not self._begun and not self._refuses(None) and self._claim():
            self._go(None)

    def _ends(self):
        # type: () -> None
        if self._begun:
            return
        value = getattr(sys, "last_value", None)
        text = "%s: %s" % (type(value).__name__, probe._text(value)) if value is not None else ""
        why = choice.obstacle(None) if self._fits() else _ANOTHER
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
        if not self._may_probe() or not self._claim():
            return
        threading = sys.modules.get("threading")
        if getattr(threading, "_SHUTTING_DOWN", False):
            # The application is over, the probe is not: it may need threads to look up names.
            threading._SHUTTING_DOWN = False  # type: ignore[union-attr]
        self._go(None)

    def _main_ends(self, error):
        # type: (Optional[BaseException]) -> None
        """Where a probe at exit comes too late. An exception is told there."""
        if error is None or isinstance(error, SystemExit) or self._connected or _in_ssl(error):
            self._ends()

    def _may_probe(self):
        # type: () -> bool
        """Wait until the judge, who sees the other processes, has decided."""
        outbox = self.spec["outbox"]
        answer = os.path.join(outbox, "answer-%d" % os.getpid())
        while os.path.isdir(outbox):
            if os.path.exists(answer):
                with open(answer) as source:
                    return source.read() == "probe"
            sampler._sleep(0.01)
        return False

    def _go(self, frame):
        # type: (Optional[FrameType]) -> None
        options = self.options()
        found = fetchers.of_connection(frame, options) if frame is not None else self._fetch
        greenlet = getattr(sys.modules.get("greenlet"), "greenlet", None)
        if greenlet is not None:
            them = [each for each in gc.get_objects() if isinstance(each, greenlet)]
            self._bystanders = [weakref.ref(each) for each in them]
        self.measure(*(found or (None, "")))


def _in_ssl(error):
    # type: (Any) -> bool
    """Return True for the recursion of a context that was imported before patching: a client that is made
    while the program begins ends it, and what it would have fetched with fails in the same way."""
    if "recursion" not in probe._text(error):
        return False
    return any(os.path.basename(spot[0]) == "ssl.py" for spot in probe._raised(error))


def _argv():
    # type: () -> Any
    return list(getattr(sys, "argv", []))


def _is_missing(error, module):
    # type: (BaseException, str) -> bool
    """Whether ``module`` itself could not be found, not something that it imports."""
    if not isinstance(error, ImportError):
        return False
    name = getattr(error, "name", None) or str(error).rpartition(" ")[2].strip("'\"")
    return bool(name) and (module == name or module.startswith(name + "."))


def read_spec():
    # type: () -> Optional[Dict[str, Any]]
    """What the judge wants of this process; None when there is no judge."""
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    try:
        with open(path) as source:
            spec = json.load(source)  # type: Dict[str, Any]
    except (IOError, ValueError):
        return None  # the judge has gone, and left its name in somebody's environment
    return spec


def begin(spec):
    # type: (Dict[str, Any]) -> Agent
    """Record from now on."""
    remedies.prepare(spec["remedies"], recorder.record)
    recorder.install()
    return Agent(spec)
