"""Define the table of remedies: each with the line of code, the place for it, and its measurement.

The line is executed as it is printed, at the place that is printed, in a new process of the same set-up
(``agent/https_agent/remedies.py``). There is no second implementation that could differ from it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from diagnostics import predicates, source_places, start_remedies
from diagnostics.both_ways import waited_elsewhere
from diagnostics.errors import ProbeError
from diagnostics.evidence import Case
from diagnostics.model import NOT_MEASURED, Observation, Remedy
from diagnostics.source_places import Spot
from diagnostics.verdict import judge, opening
from diagnostics.waits import blocking_arguments, in_pool

__all__ = ["KNOWN", "Plan", "is_known", "measure_again"]

_DESCRIPTORS = 65536
_CELL = "<In ["
# Threads that run already may not work when patched. A kernel of Jupyter looks at which of its threads it
# is in, and answers nothing where all seem to be one.
_PATCH_BUT_THREADS = "from gevent import monkey; monkey.patch_all(thread=False)"
_INPUT = "<standard input>"
_RUNS_TEXT = re.compile(r"\b(exec|eval|execfile)\(")  # then the call is in another text
_PATCH = "from gevent import monkey; monkey.patch_all()"
_OWN_PTH = "gevent-first.pth"


class Plan(NamedTuple):
    """A remedy at a place.

    ``line``: the code; ``where``: the place, as printed; ``place``: the same for the agent, see
    ``https_agent.remedies``; ``why``: the reason where it cannot be measured; ``instead``: it is tried only
    where the command did not do its work with the plan before it.
    """

    line: str
    where: str
    place: dict[str, Any]
    why: str = ""
    instead: bool = False


class Known(NamedTuple):
    """A row of the table.

    ``plans``: returns the places to try, best first; none where it cannot help; ``unless``: it is not tried
    where one of these has helped.
    """

    summary: str
    plans: Callable[[Case], list[Plan]]
    unless: tuple[str, ...] = ()


# places


def _in_front_of(case: Case, line: str, file: str, number: int) -> Plan:
    lines = (source_places.text_of(file, case.facts) or "").split("\n")
    before = "".join(lines[: number - 1]).strip()
    shown = case.shown(file)
    where = f"in front of {case.line(file, number)}" if before else f"the first line of {shown}"
    return Plan(line, where, {"place": "start", "file": file, "number": number})


def _begins(case: Case) -> tuple[str, int, int]:
    """Return where the application's own code starts: a file, and the lines of its first two statements."""
    for file in case.facts.get("roots", []):
        if file == _INPUT:
            return file, 1, 2
        first, second = source_places.first_statement(file, case.facts)
        if first:
            return file, first, second
    return "", 0, 0


def _before_requests(case: Case, line: str) -> list[Plan]:
    """Return plans for the line that leads to the first request, else for the end of the application.

    With a style the agent knows the moment before the first request.
    """
    target = case.question.target
    if target.style:
        return [Plan(line, "before the first request", {"place": "fetch"})]
    reached: Spot | None = case.seen.get("reached")
    if target.command and reached:
        first, last, _ = source_places.statement_at(reached, case.facts)
        if first:
            file = case.file(reached)
            place = {"place": "line", "file": file, "number": first, "last": last}
            return [Plan(line, f"in front of {case.line(file, first)}", place)]
    roots = case.app_files
    if not roots:
        return []
    return [Plan(line, f"the last line of {case.shown(roots[-1])}", {"place": "end", "file": roots[-1]})]


# plans


def _patch_first(case: Case) -> list[Plan]:
    style = case.question.target.style
    if style:
        return [Plan(_PATCH, f"before import {style}", {"place": "set-up"})]
    file, first, second = _begins(case)
    begins = re.match(r"(from|import)\s+(os,\s*)?gevent\b", case.text((file, first))) if file else None
    if not file or (begins and _is_there(case, file, second or first)):
        return []
    if file.startswith(_CELL):
        return [_in_front_of(case, _PATCH_BUT_THREADS, file, first)]
    if case.facts.get("xdist_worker"):
        return [_in_front_of(case, start_remedies.PATCH_WORKERS, file, first)]
    plans = [_in_front_of(case, _PATCH, file, first)]
    if case.question.target.command:
        # What imports the user's file may have threads, which the agent cannot tell from those of gevent.
        plans.append(_in_front_of(case, _PATCH_BUT_THREADS, file, first)._replace(instead=True))
    return plans


def _is_there(case: Case, file: str, number: int) -> bool:
    """Return whether the application already starts with it."""
    call = case.seen["patches"][0] if case.seen["patches"] else None
    spot = call["caller"] if call else None
    keeps = file.startswith(_CELL) or case.facts.get("xdist_worker")
    kept = {"thread": "False"} if keeps else {}
    if call is None or spot is None or call["function"] != "patch_all" or call["arguments"] != kept:
        return False
    return case.file(spot) == file and bool(spot[1] <= number)


def _patch_earlier(case: Case) -> list[Plan]:
    """Return plans for what runs before the application: sitecustomize, a ``.pth`` file.

    None for a program that is packed: its gevent is not there yet, and another one may be.
    """
    if case.packed:
        return []
    for event in sorted(case.seen["imports"].values(), key=lambda each: int(each["at"])):
        for spot in event["stack"]:
            file = case.file(spot)
            folder, name = os.path.split(file)
            if name in ("sitecustomize.py", "usercustomize.py"):
                first = source_places.first_statement(file, case.facts)[0] or 1
                return [*_in_packages(folder), _in_front_of(case, _PATCH, file, first)]
            if spot[2] == ".pth":
                earlier = next(
                    each
                    for each in ("00-gevent.pth", "0-gevent.pth", "!gevent.pth", "!.pth")
                    if each < name
                )
                line = "import gevent.monkey; gevent.monkey.patch_all()"
                where = f"as the file {earlier} beside {case.shown(file)}, which it precedes"
                return [Plan(line, where, {"place": "pth", "file": folder, "name": earlier})]
    if case.seen["early"]:
        why = f"{NOT_MEASURED}a command's .pth files have run before it can be changed; check it with --app"
        return [Plan("import gevent.monkey; gevent.monkey.patch_all()", "in an earlier .pth file", {}, why)]
    return []


def _in_packages(folder: str) -> list[Plan]:
    """Return the plan of a ``.pth`` file for what is in an installed package.

    A line in the package's own file would be gone with its next version.
    """
    while not os.path.basename(folder).endswith("-packages"):
        if folder == os.path.dirname(folder):
            return []
        folder = os.path.dirname(folder)
    line = "import gevent.monkey; gevent.monkey.patch_all()"
    where = f"as the file {os.path.join(folder, _OWN_PTH)}"
    return [Plan(line, where, {"place": "pth", "file": folder, "name": _OWN_PTH})]


def _start_patched(case: Case) -> list[Plan]:
    return [Plan(each.line, each.where, each.place) for each in start_remedies.starts(case)]


def _patch_select(case: Case) -> list[Plan]:
    return _before_requests(case, "import gevent.monkey; gevent.monkey.patch_select()")


def _patch_again(case: Case) -> list[Plan]:
    names = predicates.put_back_modules(case)
    if not names:
        return []
    line = "import gevent.monkey; " + "; ".join(f"gevent.monkey.patch_{name}()" for name in names)
    plans = []
    spot = predicates.putting_back(case, names[0])
    own = spot is not None and source_places.is_own(spot, case.facts)
    after = source_places.statement_at(spot, case.facts)[2] if spot and own else 0
    if spot and after:
        file = case.file(spot)
        plans = [
            Plan(
                line,
                f"in front of {case.line(file, after)}",
                {"place": "line", "file": file, "number": after, "last": after},
            )
        ]
    return plans + _before_requests(case, line)


def _extract(case: Case) -> list[Plan]:
    injection = case.injection
    by = injection["module"] if injection else ""
    # The name under which the copy can be imported there, which may be a vendored one.
    module = f"{case.copy}.contrib.pyopenssl" if case.copy else by
    if not module.endswith(".contrib.pyopenssl"):
        module = "urllib3.contrib.pyopenssl"
    return _before_requests(case, f"import {module}; {module}.extract_from_urllib3()")


def _extract_truststore(case: Case) -> list[Plan]:
    calls = [each for each in case.seen["injections"] if each["function"] == "inject_into_ssl"]
    module = (calls[-1]["module"] if calls else "truststore").removesuffix("._api")
    return _before_requests(case, f"import {module}; {module}.extract_from_ssl()")


def _leave_out(function: str) -> Callable[[Case], list[Plan]]:
    """Return a function that plans to remove the user's own call of ``function``."""

    def plans(case: Case) -> list[Plan]:
        for event in reversed(case.seen["injections"]):
            spot = event["caller"]
            if event["function"] != function or not spot or not source_places.is_own(spot, case.facts):
                continue
            first, last, _ = source_places.statement_at(spot, case.facts)
            if first and not _RUNS_TEXT.search(case.text(spot)):
                file = case.file(spot)
                place = {"place": "call", "file": file, "name": function, "number": first, "last": last}
                return [Plan(case.text(spot), f"remove it at {case.line(str(spot[0]), spot[1])}", place)]
        return []

    return plans


def _unblock(case: Case) -> list[Plan]:
    parked = case.parked_in(in_pool)
    plans = []
    for name in blocking_arguments(parked["stack"] if parked is not None else ()):
        found = case.pool_lines([rf"\b{name}\s*=\s*True"])
        spot = found[0] if len(found) == 1 else None
        first = last = 0
        if spot and source_places.text_of(str(spot[0]), case.facts) is None:
            first = last = spot[1]  # what was read from standard input is not kept: it is tried
        elif spot and re.search(rf"\b{name}\b", case.text(spot)):
            first, last, _ = source_places.statement_at(spot, case.facts)
        if spot and first:
            place = {"place": "argument", "file": spot[0], "name": name, "number": first, "last": last}
            where = f"instead of {name}=True at {case.line(str(spot[0]), spot[1])}"
            plans.append(Plan(f"{name}=False", where, place))
    return plans


def _descriptors(case: Case) -> list[Plan]:
    maximum = case.facts.get("most_descriptors") or _DESCRIPTORS
    number = min(maximum, _DESCRIPTORS) if maximum > 0 else _DESCRIPTORS
    place = {"place": "ulimit", "number": number}
    return [Plan(f"ulimit -n {number}", "in the shell that starts the process", place)]


def _resolver(case: Case) -> list[Plan]:
    return _before_requests(case, "import gevent; gevent.get_hub().threadpool.maxsize = 200")


KNOWN = {
    "patch-all-first": Known("patch everything, before anything else is imported", _patch_first),
    "patch-before-everything": Known("patch everything in front of what runs at startup", _patch_earlier),
    "patch-at-start": Known(
        "start the command patched: something is imported before your own code",
        _start_patched,
        ("patch-all-first", "patch-before-everything"),
    ),
    "patch-select": Known("patch select, too, before the first request", _patch_select),
    "patch-again": Known("patch once more what was put back", _patch_again),
    "extract-pyopenssl": Known("take pyOpenSSL out of urllib3, before the first request", _extract),
    "no-injection": Known("leave the injection out", _leave_out("inject_into_urllib3")),
    "no-truststore": Known("leave truststore's injection out", _leave_out("inject_into_ssl")),
    "extract-truststore": Known(
        "take truststore out of ssl, before the first request", _extract_truststore
    ),
    "raise-descriptors": Known("allow more open files", _descriptors),
    "more-resolver-threads": Known("give gevent's resolver more threads", _resolver),
    "unblock-pool": Known("let the pool open as many connections as it needs", _unblock),
}


def is_known(case: Case, codes: Iterable[str]) -> bool:
    """Return True if one of ``codes`` has a place in this case where it can be tried."""
    return any(not plan.why for code in codes for plan in KNOWN[code].plans(case))


def measure_again(
    case: Case,
    codes: Iterable[str],
    again: Callable[[dict[str, Any]], Observation],
    progress: Callable[[str], None],
) -> tuple[list[Remedy], list[Remedy]]:
    """Try each of ``codes`` with ``again``; return those that worked, best first, and those that did not.

    Raises KeyError for a code that is not in the table.
    """
    worked: list[Remedy] = []
    failed: list[Remedy] = []
    for code in codes:
        known = KNOWN[code]
        if {each.code for each in worked} & set(known.unless):
            continue
        did_work = True
        for plan in known.plans(case):
            if plan.instead and did_work:
                continue
            progress(f"measuring again with: {known.summary}")
            remedy, did_work = _measured(case, code, known, plan, again)
            (worked if remedy.verdict == "concurrent" else failed).append(remedy)
            if remedy.verdict == "concurrent":
                break
    return worked, failed


def _measured(
    case: Case, code: str, known: Known, plan: Plan, again: Callable[[dict[str, Any]], Observation]
) -> tuple[Remedy, bool]:
    """Return the remedy with its measurement, and whether the command did its work with it."""
    wall, verdict, why, did_work = None, "error", plan.why, True
    if not why:
        try:
            seen = again({"code": code, "line": plan.line, **plan.place})
            judgement = judge(case.question, seen)
        except ProbeError as error:
            why, did_work = str(error), False
        else:
            broken = _broken(case.observation, seen)
            if code not in seen.result["applied"]:
                why = "that place was not reached in the process that was probed"
            elif broken:
                # What was measured is a process in which the program itself does not come to fetch.
                why, did_work = broken, False
            else:
                verdict = judgement.verdict
                # The seconds of the same pass as without it.
                opened = None if case.judgement.delay else opening(case.question, seen)
                wall = round(opened or judgement.wall, 3) if verdict != "error" else None
                why = {"serialized": "still serialized", "error": judgement.error}.get(verdict, "")
                # What was measured is the client: what the program does around its calls remains.
                if verdict == "concurrent" and (
                    waited := waited_elsewhere(Case(case.question, seen, judgement))
                ):
                    why = f"but {waited}, too"
    # What was measured is the unpacked file, and the next start may unpack it once more.
    again_packed = ", then pack the program again" if case.packed and "file" in plan.place else ""
    where = f"{plan.where}{again_packed}"
    return Remedy(code, known.summary, wall, verdict, plan.line, where, why), did_work


def _broken(without: Observation, seen: Observation) -> str:
    """Return how the command gets less far with a remedy than ``without`` it; "" if it does not."""
    end, plain = seen.end, without.end
    if end is None:
        return ""
    if without.connected and not seen.connected:
        return f"with it, the command ends before it tries an HTTPS connection{end.output}"
    if end.code and plain is not None and plain.code == 0:
        return f"with it, the command ends with exit code {end.code}{end.output}"
    return ""
