"""Combine everything that is known of one process in the form that the causes need. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from diagnostics.model import Observation, Question
from diagnostics.source_places import (
    Spot,
    absolute,
    ending,
    first_statement,
    is_own,
    is_package,
    line_of,
    lines_of,
    short,
    source_line,
    statement_at,
    where,
)
from diagnostics.verdict import Judgement, waited

__all__ = ["Case"]

_POLLS = {
    "_poll_wait_for_socket",
    "_retry_on_intr",
    "poll_wait_for_socket",
    "select_wait_for_socket",
    "wait_for_read",
    "wait_for_socket",
    "wait_for_write",
}
_SUBJECTS = ("gevent", "gevent.monkey", "requests", "urllib3")
_OF_SUBJECTS = re.compile(r"(-packages|\.whl|\.egg)/(gevent|requests|urllib3)/")
_MAKES_CODE = r"\b(exec|eval|execfile)\s*\("
_CALL_POLL = r"\b(poll|select|epoll)\b.*\("


class Case:
    """An observation, the judgement of it, and what follows from both."""

    def __init__(self, question: Question, seen: Observation, judgement: Judgement) -> None:
        self.question = question
        self.judgement = judgement
        self.observation = seen
        self.facts = seen.facts
        self.patched: dict[str, bool] = seen.facts["patched"]
        self.seen = seen.seen
        self.held: list[dict[str, Any]] = seen.held
        self.parked: list[dict[str, Any]] = seen.result["parked"]
        self.errors: list[dict[str, Any]] = [
            error for each in reversed(seen.result["rounds"]) for error in each["first"]
        ]

    @property
    def packed(self) -> bool:
        """Return whether the program is packed, as pex and shiv do."""
        return bool(self.facts.get("start_code"))

    # places

    def where(self, spot: Spot | None) -> str:
        """Return ``spot`` as it is printed."""
        return where(spot, self.facts)

    def at(self, spot: Spot | None) -> str:
        """Return ``spot`` as the end of a clause, "" where there is none."""
        return ending("at", self.where(spot))

    def shown(self, file: str) -> str:
        """Return the path ``file`` as it is printed."""
        return short(file, self.facts)

    def file(self, spot: Spot) -> str:
        """Return the absolute path of the file of ``spot``, or the name of what is in none."""
        return absolute(str(spot[0]), self.facts)

    def line(self, file: str, number: int) -> str:
        """Return a line of ``file`` as it is printed, without its text."""
        between = ", line " if file.startswith("<") else ":"
        return f"{self.shown(file)}{between}{number}"

    def text(self, spot: Spot) -> str:
        """Return the line of the source at ``spot``."""
        return source_line(spot, self.facts)

    def event_at(self, event: dict[str, Any] | None, text: bool = True) -> str:
        """Return where ``event`` was called from, without gevent's own code and the import machinery.

        Without ``text``, the text of a line that is in no file is left out. C code that calls has no place,
        as that of uWSGI.
        """
        if event and not (event["caller"] or event["user"] or event["stack"]):
            return "compiled code"
        if event and not text and (spot := event["caller"] or event["user"]):
            return self.line(str(spot[0]), spot[1])
        if event and event["stack"] and not (event["caller"] or event["user"]):
            return (
                "python -m gevent.monkey"
                if event["stack"][0][2] == "main"
                else self.where(event["stack"][0])
            )
        return self.where(event["caller"] or event["user"]) if event else ""

    def first_import(self, *names: str, before: int | None = None) -> Spot | None:
        """Return the user's line that led to the first import of one of ``names``, else any line that did.

        Only imports ``before`` an event count, if that is given.
        """
        events = [self.seen["imports"][name] for name in names if name in self.seen["imports"]]
        events = [each for each in events if before is None or each["at"] < before]
        for event in sorted(events, key=lambda each: each["at"]):
            spot: Spot | None = event["user"] or event["caller"]
            if spot:
                return spot
        return None

    def own_line(self, pattern: str) -> Spot | None:
        """Return the first line in the user's own files that matches ``pattern``."""
        return line_of(self.facts.get("own_files", []), pattern, self.facts)

    def pool_lines(self, patterns: Iterable[str]) -> list[Spot]:
        """Return the line that makes the pool that was measured; several where it may be any of them.

        ``patterns``: of what makes a pool let only some through, the likeliest first.
        """
        matching = [list(lines_of(self.facts.get("own_files", []), each, self.facts)) for each in patterns]
        made: list[Spot] = self.observation.result.get("made") or []
        for lines in matching:
            for spot in made:
                first, last, _ = statement_at(spot, self.facts)
                within = [
                    each
                    for each in lines
                    if self.file(each) == self.file(spot)
                    and (each[1] == spot[1] or first <= each[1] <= last)
                ]
                if within:
                    return within[:1]
        return made[:1] or next(filter(None, matching), [])

    @cached_property
    def subject(self) -> Spot | None:
        """Return where the application starts, for a cause that is in no single line.

        This is a line of the user's own code even where a package (celery, gunicorn) imported the same
        modules before. What the probe alone imported has no line in the application.
        """
        events = [self.seen["imports"][name] for name in _SUBJECTS if name in self.seen["imports"]]
        own = [each for each in events if each["user"]]
        if own:
            spot: Spot = min(own, key=lambda each: int(each["at"]))["user"]
            return spot
        if self.question.target.app:
            return self._first_line or self._of_package(_SUBJECTS)
        return self._of_package(_SUBJECTS) or self._of_package(("ssl",))

    @property
    def imports_gevent(self) -> bool:
        """Return whether the program, and not the probe alone, imported gevent."""
        return self._of_package(("gevent", "gevent.monkey")) is not None

    def _of_package(self, names: Sequence[str]) -> Spot | None:
        """Return the first line that imported one of ``names``, and is in none of their packages."""
        spots = [self.first_import(name) for name in names]
        return next((spot for spot in spots if spot and not _OF_SUBJECTS.search(_slashes(spot))), None)

    @property
    def _first_line(self) -> Spot | None:
        """Return the first statement of the application that ``--app`` names."""
        for file in self.app_files:
            if first := first_statement(file, self.facts)[0]:
                return file, first, "<module>"
        return None

    @property
    def app_files(self) -> list[str]:
        """Return the files in which the user's code starts; of ``--app``, those of its module."""
        roots: list[str] = self.facts.get("roots", [])
        if not self.question.target.app:
            return roots
        module = self.question.target.app.partition(":")[0].replace(".", os.sep)
        return [file for file in roots if file.endswith((f"{module}.py", f"{module}{os.sep}__init__.py"))]

    # patching

    @property
    def first_patch(self) -> int | None:
        """Return the number of the event in which something was patched first; None if nothing was."""
        return min((each["at"] for each in self.seen["patches"]), default=None)

    @property
    def nothing_patched(self) -> bool:
        """Return True if gevent has replaced none of socket, ssl, select and time."""
        return not any(self.patched.get(name) for name in ("socket", "ssl", "select", "time"))

    @property
    def in_threads(self) -> bool:
        """Return True if the requests ran in the threads of a pool of gevent's."""
        return "gevent.threadpool" in (self.observation.result.get("name") or "")

    @property
    def patching(self) -> dict[str, Any] | None:
        """Return the first call that patches the sockets, ssl or everything; else the first patching
        call."""
        calls = self.seen["patches"]
        wide = [each for each in calls if each["function"] in ("patch_all", "patch_socket", "patch_ssl")]
        found: list[dict[str, Any]] = wide or calls
        return found[0] if found else None

    def shown_call(self, event: dict[str, Any]) -> str:
        """Return the call as it is in the source: ``patch_all(thread=False, select=False)``."""
        written = self.text(event["caller"] or ("", 0))
        given = sorted(event["arguments"].items(), key=lambda pair: written.find(f"{pair[0]}="))
        arguments = (f"{k}={v}" for k, v in given)
        return f"{event['function']}({', '.join(arguments)})"

    def patch_line(self) -> str:
        """Return one line of evidence: who patched, and with which arguments."""
        calls = self.seen["patches"]
        if not calls:
            if self.nothing_patched:
                return "no gevent patching call was made"
            program = "gevent.monkey" in self.question.target.command
            return "python -m gevent.monkey patches" if program else "patched by a call that was not seen"
        return "; ".join(
            f"{self.event_at(each, text=False)} calls {self.shown_call(each)}" for each in calls[:3]
        )

    @property
    def ssl_before_patch(self) -> str:
        """Return who imported ssl before anything was patched; "" if nothing did."""
        event = self.seen["imports"].get("ssl")
        first = min((each["at"] for each in self.seen["patches"]), default=None)
        if "ssl" in self.seen["early"]:
            return "before the recording began (a .pth file or sitecustomize)"
        if event is None or (first is not None and event["at"] > first):
            return ""
        if first is None and not self.patched.get("ssl"):
            return ""
        return self.where(event["user"] or event["caller"])

    # what was held

    @property
    def lasted(self) -> float:
        """Return the seconds that the N requests took; the seconds of the whole probe if it was given
        up."""
        wall = self.judgement.wall
        seconds: float = self.observation.result["seconds"] if self.judgement.problem else 0.0
        return max(wall, seconds)

    @cached_property
    def blocked(self) -> list[dict[str, Any]]:
        """Return what held the hub while it waited, longest first."""
        found = [each for each in self.held if waited(each) > each["seconds"] / 4]
        return sorted(found, key=waited, reverse=True)

    @cached_property
    def busy(self) -> list[dict[str, Any]]:
        """Return what held the hub while it computed, longest first."""
        found = [each for each in self.held if each["cpu"] + each["ready"] > waited(each)]
        return sorted(found, key=lambda each: -each["cpu"])

    def held_seconds(self, held: list[dict[str, Any]]) -> float:
        """Return the total seconds of ``held``."""
        return float(sum(each["seconds"] for each in held))

    def held_line(self, held: list[dict[str, Any]]) -> str:
        """Return one line of evidence: where the hub was held, and for how long."""
        top = held[0]
        spot = self.leaf(top)
        text = self.text(spot)
        total = self.observation.result["seconds"]
        share = f"{min(self.held_seconds(held), total):.1f} of {total:.1f} s"
        return f"the hub was held{self.at(spot)}  {text[:60]}  {share}"

    def served_line(self) -> str:
        """Return one line of evidence: how many requests the server saw waiting at once."""
        seen = self.judgement.served
        if seen is None:
            return ""
        return f"the server saw {seen.requests} requests, {seen.mean:.1f} at once, {seen.peak} at most"

    def leaf(self, held: dict[str, Any]) -> Spot:
        """Return the innermost frame."""
        stack: list[Spot] = held["stack"]
        return stack[0] if stack else ("", 0, "")

    def own_frame(self, stack: Sequence[Spot]) -> Spot | None:
        """Return the innermost frame of the user's code, else of a package but gevent, else of any code.

        Where the user's files make code, what runs in such code is at the line that makes it; it has no
        place in a file where there are several, and that of its caller is never its own.
        """
        own = [spot for spot in stack if is_own(spot, self.facts)]
        if not own and stack and str(stack[0][0]).startswith("<"):
            making = list(lines_of(self.facts.get("own_files", []), _MAKES_CODE, self.facts))
            own = making if len(making) == 1 else list(stack[:1]) if making else []
        packages = [spot for spot in stack if is_package(str(spot[0]))]
        # What waits is in gevent in the end; who calls it there tells more.
        packages = [spot for spot in packages if "/gevent/" not in str(spot[0])] or packages
        files = [spot for spot in stack if not str(spot[0]).startswith("<")]
        found = own or packages or files or list(stack)
        return found[0] if found else None

    def user_frame(self, stack: Sequence[Spot]) -> Spot | None:
        """Return the innermost frame of the user's code, if there is one."""
        return next((spot for spot in stack if is_own(spot, self.facts)), None)

    @cached_property
    def held_in_poll(self) -> list[dict[str, Any]]:
        """Return what waited in the operating system's select or poll, if that is much of the waiting."""
        return self._telling([each for each in self.blocked if self._is_poll(each["stack"])])

    def _telling(self, held: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return ``held``, [] where it is little of what held the hub: a moment in it is no cause."""
        return held if sum(map(waited, held)) >= sum(map(waited, self.blocked)) / 3 else []

    def _is_poll(self, stack: Sequence[Spot]) -> bool:
        for spot in stack[:3]:
            if spot[2] in _POLLS or str(spot[0]).replace("\\", "/").endswith("util/wait.py"):
                return True
        return bool(stack) and bool(re.search(_CALL_POLL, self.text(stack[0])))

    @cached_property
    def held_in_pyopenssl(self) -> list[dict[str, Any]]:
        """Return what waited inside OpenSSL's own calls, on a blocking socket, if that is much of it."""
        return self._telling([each for each in self.blocked if "OpenSSL" in str(self.leaf(each)[0])])

    # TLS

    @cached_property
    def socket_class(self) -> str:
        """Return the class of the TLS socket of the last connection."""
        connections = self.seen["connections"]
        return str(connections[-1]["cls"]) if connections else ""

    @cached_property
    def pyopenssl(self) -> dict[str, Any] | None:
        """Return the last connection that pyOpenSSL carried, if there is one."""
        found = [each for each in self.seen["connections"] if "ssl.SSLSocket" not in each["cls"]]
        return found[-1] if found else None

    @property
    def copy(self) -> str:
        """Return the name of the copy of urllib3 whose wrapper carries it; "" if there is none."""
        name = self.pyopenssl["cls"] if self.pyopenssl else ""
        return str(name).partition(".contrib.")[0] if ".contrib." in name else ""

    @property
    def injection(self) -> dict[str, Any] | None:
        """Return the last injection into that copy, else the last one into any copy."""
        calls = [each for each in self.seen["injections"] if each["function"] == "inject_into_urllib3"]
        own = [each for each in calls if each["module"].startswith(f"{self.copy}.")]
        found: list[dict[str, Any]] = own or calls
        return found[-1] if found else None

    @property
    def context_made(self) -> Spot | None:
        """Return where pyOpenSSL's first context was made: the user's line, else a package's."""
        made = [each for each in self.seen["contexts"] if each["cls"].startswith("OpenSSL")]
        for event in [*made, *([self.pyopenssl] if self.pyopenssl else [])]:
            spot: Spot | None = event["user"] or event["caller"]
            if spot:
                return spot
        return None

    @property
    def contexts_kept(self) -> list[Spot]:
        """Return where the user made contexts of pyOpenSSL that are not of one connection alone."""
        made = [each for each in self.seen["contexts"] if each["cls"].startswith("OpenSSL")]
        kept = [each["user"] for each in made if not any(spot[2] == "connect" for spot in each["stack"])]
        return list(dict.fromkeys(tuple(spot) for spot in kept if spot))

    # waiting

    def parked_in(self, test: Callable[[Sequence[Spot]], bool]) -> dict[str, Any] | None:
        """Return where at least half of the greenlets waited at once, if ``test`` accepts the stack."""
        together = any(each["requests"] > 1 for each in self.observation.result["rounds"])
        minimum = min(self.question.requests, 50) / 2 if together else 1
        for each in self.parked:
            if each["most"] >= minimum and test(each["stack"]):
                return each
        return None


def _slashes(spot: Spot) -> str:
    return str(spot[0]).replace("\\", "/")
