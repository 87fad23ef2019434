"""Print a diagnosis: the verdict, the cause with file and line, and the remedies as measured."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from diagnostics.model import Diagnosis, Question

__all__ = ["headline", "show"]

_STYLES = {
    "concurrent": ("OK", "bold green"),
    "serialized": ("FAIL", "bold red"),
    "error": ("FAIL", "bold red"),
}

_IN_A_ROW = 1.5  # requests at once, on average; so few show nothing


def show(question: Question, found: Diagnosis, console: Console, fixed: bool, profile: bool) -> None:
    """Print ``found`` to ``console``.

    ``fixed``: remedies were to be measured; ``profile``: print what held the hub, too.
    """
    word, style = _STYLES[found.verdict]
    console.print(Text.assemble((f"{word:<6}", style), headline(found)))
    for note in found.notes:
        console.print(Text.assemble(("note  ", "bold"), note))
    head = "limit " if found.verdict == "concurrent" else "cause "
    for cause in found.causes:
        console.print(Text.assemble((head, "bold"), (cause.code, "yellow"), f"  {cause.where}".rstrip()))
        for line in [cause.summary, *cause.evidence]:
            console.print(Text(f"      {line}"))
        for line in cause.explanation.strip().splitlines():
            console.print(Text(f"      {line}", "dim"))
    if found.remedies:
        _remedies(found, console)
    elif found.verdict == "concurrent":
        pass  # a limit that the program sets itself
    elif found.causes and fixed:
        any_tried = any(each.was_tried for each in found.tried)
        text = "no remedy that was tried helps" if any_tried else "no remedy is known that could be tried"
        console.print(Text.assemble(("fix   ", "bold"), text))
    elif found.fixable:
        console.print(
            Text.assemble(("fix   ", "bold"), "the same command with --fix measures the remedies")
        )
    for remedy in found.tried:
        wall = f" ({remedy.wall_s:.2f} s)" if remedy.wall_s is not None else ""
        tried = Text.assemble(
            ("tried " if remedy.was_tried else "known ", "bold"),
            (remedy.line, "cyan"),
            f"   {remedy.where}   {remedy.why}{wall}",
        )
        console.print(tried)
    if profile:
        _profile(found, console)


def headline(found: Diagnosis) -> str:
    """Return the verdict with its numbers, in one line."""
    took = f"{found.requests} × {found.delay_s:g} s took {found.wall_s:.2f} s"
    if not found.delay_s:
        took = (
            f"{found.requests} requests without a delay, which open connections, took {found.wall_s:.2f} s"
        )
    ratio = f"(concurrency {found.concurrency:.1f} of {found.requests})"
    if found.unmeasured:
        return f"HTTPS of the program was not measured: {found.error}"
    for cause in found.causes:
        if cause.code == "no-request":
            return f"HTTPS was not measured: {cause.summary}"
        if cause.code == "rate-limit" and found.concurrency < _IN_A_ROW:
            return f"HTTPS is limited by a rate, and whether it is concurrent is not known: {took} {ratio}"
    return {
        "concurrent": f"HTTPS is concurrent: {took} {ratio}",
        "serialized": f"HTTPS is serialized: {took} {ratio}",
        "error": f"HTTPS does not work here: {found.error or 'no request came back'}",
    }[found.verdict]


def _remedies(found: Diagnosis, console: Console) -> None:
    for number, remedy in enumerate(found.remedies, 1):
        head = "fix   " if number == 1 else "      "
        console.print(
            Text.assemble(
                (head, "bold"), f"{number}. ", (remedy.line, "cyan"), f"   {remedy.where}   {remedy.again}"
            )
        )


def _profile(found: Diagnosis, console: Console) -> None:
    console.print(Text.assemble(("profile ", "bold"), f"longest time without the hub {found.gap_s:.2f} s"))
    for each in found.held:
        console.print(f"      {each['seconds']:.2f} s held, {each['cpu_s']:.2f} s of it computing")
        for frame in each["frames"]:
            console.print(Text(f"          {frame}"))
    if not found.held:
        console.print("      nothing held the hub for longer than 30 ms")
