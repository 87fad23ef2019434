"""The agent's life in a process: says hello, waits for the moment to probe, reports.

A report is a file of JSON in the outbox, written whole and then renamed: nobody has to be listening,
nothing can block, and a fork or an exec does not matter.
"""

import gc
import json
import os
import signal
import sys

from . import facts, fetchers, frames, probe, recorder, remedies, sampler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, Optional, Tuple

    Fetch = Callable[[str], Any]

VARIABLE = "HTTPS_DIAGNOSTICS"
# The judge sends it when --after has passed; nobody else uses it.
SIGNAL = signal.SIGRTMAX - 5 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2


class Agent(object):
    """One for each process. ``spec`` is what the judge wants, see ``diagnostics.target``."""

    def __init__(self, spec):
        # type: (Dict[str, Any]) -> None
        self.spec = spec
        self.record = recorder.record
        self._sent = 0
        self._begun = False
        self._bystanders = set()  # type: set[int]  # greenlets that were there before the probe

    # reports

    def tell(self, kind, **fields):
        # type: (str, **Any) -> None
        """Put a report into the outbox."""
        self._sent += 1
        fields.update(kind=kind, pid=os.getpid(), ppid=os.getppid(), executable=sys.executable)
        name = "%s-%05d-%d.json" % (kind, self._sent, os.getpid())
        path = os.path.join(self.spec["outbox"], name)
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
        # type: (Fetch, str) -> None
        """Probe with ``fetch`` and report."""
        spec = dict(self.spec, name=name)
        recorder.look()
        before = facts.collect()
        self.record.probing = True

        def report(result):
            # type: (Dict[str, Any]) -> None
            result["applied"] = sorted(set(remedies.applied))
            # What the first fetch does to the process counts: it may be the one that patches.
            self.tell("measured", result=result, seen=self.record.seen(), facts=facts.refreshed(before))

        try:
            report(probe.Probe(fetch, spec).run(report))
        except fetchers.Unusable as error:
            self.failed("probe", str(error))

    # one that is told what to check

    def run_told(self):
        # type: () -> None
        """Set up as a style or an application, then probe."""
        target, options = self.spec["target"], self.options()
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
        """Probe at the first HTTPS connection, at the signal, or at the end."""
        import atexit

        signal.signal(SIGNAL, self._signalled)
        atexit.register(self._ends)
        self.record.on_connection = self._connects
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
        else:
            self._note_forks()
        self.record.on_import["gevent"] = lambda module: self.tell("gevent")
        self.tell("hello", argv=list(getattr(sys, "argv", [])), forked=False)

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

    def _forked(self):
        # type: () -> None
        self.tell("hello", argv=list(getattr(sys, "argv", [])), forked=True, gevent="gevent" in sys.modules)

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
        return True

    def _connects(self, frame):
        # type: (FrameType) -> None
        if self._begun:
            self._stand_aside()
        elif self._claim():
            self.record.reached = frames.module_level(frame)
            self.tell("connects", **frames.event(frame))
            self._go(frame)

    def _stand_aside(self):
        # type: () -> None
        """The application's other connections wait for the end, so that they do not weigh on the probe."""
        current = _current()
        if id(current) not in self._bystanders or current is _hub():
            return
        import gevent

        gevent.sleep(self.spec["limit"])

    def _signalled(self, number, frame):
        # type: (int, Optional[FrameType]) -> None
        if not self._claim():
            return
        hub = _hub()
        self.record.reached = frames.module_level(frame)
        if hub is not None and _current() is hub:
            # Here nothing may wait; a greenlet may.
            import gevent

            gevent.spawn(self._go, None)
        else:
            self._go(None)

    def _ends(self):
        # type: () -> None
        value = getattr(sys, "last_value", None)
        if value is not None:
            if not self._begun and self._claim():
                text = "%s: %s" % (type(value).__name__, probe._text(value))
                self.failed("command", text, stack=[], missing=False)
        elif self._claim():
            threading = sys.modules.get("threading")
            if getattr(threading, "_SHUTTING_DOWN", False):
                # The application is over, the probe is not: it may need threads to look up names.
                threading._SHUTTING_DOWN = False  # type: ignore[union-attr]
            self._go(None)

    def _go(self, frame):
        # type: (Optional[FrameType]) -> None
        options = self.options()
        try:
            found = fetchers.of_connection(frame, options) if frame is not None else None
            if found is None:
                found = fetchers.general(options)
        except fetchers.Unusable as error:
            self.failed("set-up", str(error))
            return
        greenlet = getattr(sys.modules.get("greenlet"), "greenlet", None)
        if greenlet is not None:
            self._bystanders = set(id(each) for each in gc.get_objects() if isinstance(each, greenlet))
        self.measure(*found)


def _is_missing(error, module):
    # type: (BaseException, str) -> bool
    """Whether ``module`` itself could not be found, not something that it imports."""
    if not isinstance(error, ImportError):
        return False
    name = getattr(error, "name", None) or str(error).rpartition(" ")[2].strip("'\"")
    return bool(name) and (module == name or module.startswith(name + "."))


def _hub():
    # type: () -> Any
    local = sys.modules.get("gevent._hub_local")
    return local.get_hub_if_exists() if local is not None else None


def _current():
    # type: () -> Any
    greenlet = sys.modules.get("greenlet")
    return greenlet.getcurrent() if greenlet is not None else None


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
