"""Define the records of an examination: the question, the observation, and the diagnosis."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from diagnostics.command_lines import shown_command, shown_words

if TYPE_CHECKING:
    from diagnostics.standard_input import StandardInput

__all__ = [
    "Cause",
    "Diagnosis",
    "End",
    "Excerpt",
    "Hold",
    "Observation",
    "Question",
    "Remedy",
    "RequestSpan",
    "Start",
    "Target",
    "Timeline",
    "Verdict",
]

Verdict = Literal["concurrent", "serialized", "error"]

# The files of gevent, on Python 2.7 as well, that call the operating system on non-blocking sockets only.
_NON_BLOCKING = re.compile(r"/gevent/_?(socket[23]?|socketcommon|ssl3?|sslgte279)\.py$")


@dataclass(frozen=True)
class Target:
    """The process to examine: a style, an application, or a command line."""

    style: str = ""
    app: str = ""
    command: tuple[str, ...] = ()
    python: str = ""

    @property
    def shown(self) -> str:
        """Return the target as it was given on the command line, without secrets."""
        if self.command:
            return shown_words(self.command)
        return self.app or f"--style {self.style}"


@dataclass(frozen=True)
class Start:
    """A process that is started in place of a command, since it had come to run without the agent.

    ``file`` is executed; ``env`` is without the diagnostics' own variables; ``why``: what kept them out;
    ``user``: user and group, where they are others than those of this process; ``input``: the file that it
    reads as its standard input, "" for an empty one, None for that of the command.
    """

    argv: list[str]
    env: dict[str, str]
    folder: str
    file: str
    why: str
    user: tuple[int, int] | None = None
    input: str | None = None

    @property
    def shown(self) -> str:
        """Return its command line, shortened, without secrets."""
        return shown_command(self.argv)


@dataclass(frozen=True)
class Question:
    """What to measure: ``requests`` concurrent GETs of ``url``, or of the built-in server.

    ``delay``: seconds after which the built-in server sends each response; ``after``: see ``patience``;
    ``stdin``: what a command has as its standard input, None for an empty one.
    """

    target: Target
    requests: int = 10
    delay: float = 0.2
    url: str = ""
    cacert: str = ""
    insecure: bool = False
    after: float | None = None
    stdin: StandardInput | None = None

    @property
    def patience(self) -> float:
        """Return the seconds after which a command is probed at the latest, or an import is asked where it
        is."""
        return self.after if self.after is not None else 5.0 if self.target.command else 18.0

    @property
    def limit(self) -> float:
        """Seconds after which a probe is given up; enough for a serial process that repeats its rounds."""
        return 60.0 if self.url else max(15.0, 6 * self.requests * self.delay + 5)


@dataclass(frozen=True)
class End:
    """How a command ended whose process was probed as it did so.

    ``code``: its exit code, None where that is not known; ``output``: what it wrote last, for a message.
    """

    code: int | None
    output: str


@dataclass(frozen=True)
class Observation:
    """What the agent observed in one process.

    - ``result``: its measurement;
    - ``seen``: its recording of how the process was set up;
    - ``facts``: the state of the process;
    - ``served``: what the built-in server counted, by run; None where another server was used;
    - ``refused``: why that server refused handshakes, in OpenSSL's words;
    - ``control``: seconds that the same requests took from plain threads of a clean process;
    - ``paced``: the built-in server showed that the program spaces its requests out, with any server;
    - ``argv``: of the probed process;
    - ``passed``: seconds that the probe took by the clock of the process, and by the kernel's time stamps
      of its reports; None where there are no reports;
    - ``start``: what was started in place of the command, since the agent had not come in;
    - ``notes``: what else to know of the command;
    - ``connected``: it had tried an HTTPS connection before it was probed;
    - ``end``: how it ended; None where it was probed before that.
    """

    result: dict[str, Any]
    seen: dict[str, Any]
    facts: dict[str, Any]
    served: dict[str, dict[str, Any]] | None = None
    refused: list[str] = field(default_factory=list)
    control: float | None = None
    paced: bool = False
    argv: list[str] = field(default_factory=list)
    passed: tuple[float, float] | None = None
    start: Start | None = None
    notes: list[str] = field(default_factory=list)
    connected: bool = False
    end: End | None = None

    @property
    def held(self) -> list[dict[str, Any]]:
        """Return what held the hub; what cannot wait was ready to run for as long as it did not.

        The sockets and the ssl of gevent never wait in a call to the operating system. Where one of their
        lines seems to, the host of a virtual machine had the CPU, which no account of a thread shows.
        """
        found: list[dict[str, Any]] = self.result["held"]
        if not (self.facts["patched"].get("socket") and self.facts["patched"].get("ssl")):
            return found
        return [
            {**each, "ready": max(0.0, each["seconds"] - each["cpu"])} if _never_waits(each) else each
            for each in found
        ]


def _never_waits(held: dict[str, Any]) -> bool:
    """Return whether the innermost frame is of gevent's sockets or ssl."""
    return bool(held["stack"]) and bool(_NON_BLOCKING.search(str(held["stack"][0][0]).replace("\\", "/")))


@dataclass(frozen=True)
class Cause:
    """Why HTTPS is not concurrent. ``where``: file:line; ``evidence``: what was observed, one line each."""

    code: str
    summary: str
    where: str
    evidence: list[str]
    explanation: str = ""


NOT_MEASURED = "not measured: "  # what the reason begins with where a remedy could not be tried


@dataclass(frozen=True)
class Remedy:
    """A remedy that was tried, and its result.

    ``line``: the code to write; ``where``: the line that it goes in front of, or replaces; ``why``: the
    reason where it did not help, or not alone; ``wall_s``: None where it ended in an error.
    """

    code: str
    summary: str
    wall_s: float | None
    verdict: str
    line: str = ""
    where: str = ""
    why: str = ""

    @property
    def again(self) -> str:
        """Return what it came to when it was measured again; "" if that ended in an error."""
        if self.wall_s is None:
            return ""
        return f"measured again: {self.wall_s:.2f} s{', ' + self.why if self.why else ''}"

    @property
    def was_tried(self) -> bool:
        """Return whether it was: some have a place that only the user can reach."""
        return not self.why.startswith(NOT_MEASURED)


@dataclass(frozen=True)
class RequestSpan:
    """A request; times in seconds of the round, ``ended`` None where it did not end.

    ``waited``: when the server had it and waited, which is known only of the built-in server.
    """

    index: int
    began: float
    ended: float | None
    failed: bool
    waited: list[tuple[float, float]]


@dataclass(frozen=True)
class Hold:
    """A time in which something held the hub. ``request``: the one that did; None if none of them did."""

    began: float
    ended: float
    request: int | None
    where: str


@dataclass(frozen=True)
class Timeline:
    """A round of ``many`` requests that took ``seconds``. ``requests``: the first of them, by index."""

    many: int
    delay: float
    seconds: float
    requests: list[RequestSpan]
    holds: list[Hold]


@dataclass(frozen=True)
class Excerpt:
    """Lines of a source. ``where``: file:line as printed; ``first``: the number of the first of ``lines``.

    ``own``: the file is the user's, not a package's.
    """

    where: str
    file: str
    line: int
    first: int
    lines: list[str]
    own: bool


@dataclass(frozen=True)
class Diagnosis:
    """The complete result; the format of ``json()`` is stable.

    ``causes`` of a concurrent process are limits that the program sets itself. ``remedies`` were measured
    to work, best first; ``tried`` were measured not to work; ``fixable``: remedies are known for the cause,
    whether measured or not; ``notes``: what else to
    know of the check. ``timeline`` and ``excerpts`` (of the places in ``causes`` and ``held``) are
    not in the JSON.
    """

    verdict: Verdict
    requests: int
    delay_s: float
    wall_s: float
    concurrency: float
    socket_class: str
    causes: list[Cause]
    remedies: list[Remedy]
    tried: list[Remedy]
    facts: dict[str, Any]
    error: str = ""
    held: list[dict[str, Any]] = field(default_factory=list)
    gap_s: float = 0.0
    fixable: bool = False
    timeline: Timeline | None = None
    excerpts: list[Excerpt] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        """Return the diagnosis as ``--json`` prints it."""
        bare = replace(self, timeline=None, excerpts=[])
        fields = asdict(bare)
        del fields["timeline"], fields["excerpts"]
        return {"version": 1, **fields}

    def excerpt(self, where: str) -> Excerpt | None:
        """Return the lines at ``where``; None if they are not known."""
        return next((each for each in self.excerpts if each.where == where), None)

    @property
    def unmeasured(self) -> bool:
        """Return whether it is only known that the program fetches with a client that was not measured."""
        return self.verdict == "error" and any(each.code == "foreign-client" for each in self.causes[:1])

    @property
    def exit_code(self) -> int:
        """0 concurrent, 1 serialized, 3 HTTPS does not work, 4 the program's client was not measured."""
        if self.unmeasured:
            return 4
        return {"concurrent": 0, "serialized": 1, "error": 3}[self.verdict]
