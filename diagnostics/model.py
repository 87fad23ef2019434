"""The records of an examination: what is asked, what was found, what it means."""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec

__all__ = ["Cause", "Diagnosis", "Observation", "Question", "Remedy", "Target", "Verdict"]

Verdict = Literal["concurrent", "serialized", "error"]


class Target(msgspec.Struct, frozen=True):
    """The process that is examined: one of a style, an application, a command line."""

    style: str = ""
    app: str = ""
    command: tuple[str, ...] = ()
    python: str = ""

    @property
    def shown(self) -> str:
        """As a person wrote it."""
        if self.command:
            return " ".join(self.command)
        return self.app or f"--style {self.style}"


class Question(msgspec.Struct, frozen=True):
    """What is measured: ``requests`` concurrent GETs, each answered after ``delay`` seconds, of ``url`` or
    of a server of ours. ``after``: seconds after which a command is probed at the latest."""

    target: Target
    requests: int = 10
    delay: float = 0.2
    url: str = ""
    cacert: str = ""
    insecure: bool = False
    after: float = 5.0

    @property
    def limit(self) -> float:
        """Seconds after which a probe is given up: time enough for a serial one that repeats."""
        return 60.0 if self.url else max(15.0, 6 * self.requests * self.delay + 5)


class Observation(msgspec.Struct, frozen=True):
    """What the agent saw. ``result`` is its measurement, ``seen`` how the process came about, ``facts``
    what it looked like; ``served`` by run, what our server counted, None where it was another one;
    ``control`` the wall time of the same from plain threads in a clean process, in seconds; ``paced``: our
    server saw that the program spaces its requests out, whatever a server does; ``argv`` of the probed
    process."""

    result: dict[str, Any]
    seen: dict[str, Any]
    facts: dict[str, Any]
    served: dict[str, dict[str, Any]] | None = None
    control: float | None = None
    paced: bool = False
    argv: list[str] = []


class Cause(msgspec.Struct, frozen=True):
    """Why. ``where``: file:line. ``evidence``: what was observed, a line each."""

    code: str
    summary: str
    where: str
    evidence: list[str]
    explanation: str = ""


class Remedy(msgspec.Struct, frozen=True):
    """What was tried against it, and what came of that. ``line``: the code to write; ``where``: in front
    of, or instead of, which line; ``why``: the reason where it did not help. ``wall_s`` None: it ended in
    an error."""

    code: str
    summary: str
    wall_s: float | None
    verdict: str
    line: str = ""
    where: str = ""
    why: str = ""


class Diagnosis(msgspec.Struct, frozen=True):
    """The whole answer; ``json()`` is the contract. ``causes`` of what is concurrent are limits that the
    program sets itself. ``remedies`` were measured to work, best first;
    ``tried`` were measured not to; ``fixable``: some are known for the cause, measured or not."""

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
    held: list[dict[str, Any]] = []
    gap_s: float = 0.0
    fixable: bool = False

    def json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        fields = cast(dict[str, Any], msgspec.to_builtins(self))
        return {"version": 1, **fields}

    @property
    def exit_code(self) -> int:
        """0 concurrent, 1 serialized, 3 HTTPS does not work."""
        return {"concurrent": 0, "serialized": 1, "error": 3}[self.verdict]
