"""Write the output of the command line: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from downloader.core.naming import printable, printable_json
from downloader.core.redact import redact
from downloader.errors import DestinationError, DownloaderError
from downloader.files.below import is_closed
from downloader.process.standard_streams import has_no_reader, silence

# Imported where it is used: not by slices, of which a job over many machines has thousands.
if TYPE_CHECKING:
    import click

__all__ = ["Console", "note", "one_line", "say", "say_json"]

_LINES_NAMED = 5


def say(text: str | bytes) -> None:
    """Write a result to stdout; bytes are written unchanged. Raises DestinationError."""
    import click

    try:
        click.echo(printable(text) if isinstance(text, str) else text)
    except OSError as error:
        nobody_reads = has_no_reader(sys.stdout, error)
        silence(sys.stdout)
        if nobody_reads:
            return  # not raised again: click would exit with 1, whatever the result of the job
        raise DestinationError(f"standard output cannot be written: {error.strerror}") from error


def note(line: str) -> None:
    """Write a line to stderr."""
    import click

    click.echo(line, err=True)


def say_json(record: Any) -> None:
    """Write a result to stdout as one line of JSON, in UTF-8 whatever the locale.

    Raises DownloaderError where stdout is closed.
    """
    import msgspec

    if is_closed(1):
        raise DownloaderError("--json: standard output is closed")
    say(printable_json(msgspec.json.encode(record).decode()).encode())


class Console:
    """The writer of errors: one line on stderr, without secrets, as JSON if --log-json is given."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self.secrets: tuple[str, ...] = ()
        self._json = "--log-json" in arguments
        # Read from argv itself, since it must be known even when argv is wrong.
        self._verbose = sum(each.count("v") for each in arguments if re.fullmatch("-[qv]+", each))

    def complain(self, text: str) -> None:
        """Write ``text`` as one line."""
        text = printable(redact(" ".join(text.split()), self.secrets))
        if self._json:
            note(json.dumps({"level": "error", "message": text}))
        else:
            note(f"downloader: error: {text}")

    def trace(self) -> None:
        """Write the traceback of the exception that is being handled, with -vv."""
        if self._verbose < 2:
            return
        text = printable(redact(traceback.format_exc().rstrip(), self.secrets))
        if self._json:
            text = json.dumps({"level": "debug", "message": text})
        note(text)

    def next_command(
        self, exit_code: int, *, retry: bool = True, faulty: Sequence[str] = (), relist: bool = True
    ) -> str:
        """Return what to type next; "" where the job is done, or where no command mends what failed.

        ``retry``: some files may not fail again. ``faulty``: lines that only a corrected list can mend.
        ``relist``: the store can take that.
        """
        command = f"downloader {shlex.join(self._shown_arguments())}"
        same = " (and the same list on standard input)" if "-" in self._arguments else ""
        if exit_code in (4, 130):
            return f"resume with: {command}{same}"
        if exit_code != 1:
            return ""
        advice = [f"try the failed ones again with: {command} --retry-failed{same}"] if retry else []
        if faulty:
            more = ", …" if len(faulty) > _LINES_NAMED else ""
            lines = f"{', '.join(faulty[:_LINES_NAMED])}{more}"
            then = f", then: {command} --relist" if relist else ": store the corrected rows with another -o"
            advice.append(f"correct the list ({lines}){then}")
        return "\n  ".join(advice)

    def _shown_arguments(self) -> Iterator[str]:
        """Yield the arguments to show.

        No value of -H, no credentials in a URL, no --restart, --retry-failed or --relist.
        """
        hide = False
        for argument in self._arguments:
            short = re.match("-[qv]*H", argument)
            if hide or (short and short.end() < len(argument)):
                yield f"{argument.partition(':')[0]}: …"
            elif argument not in ("--restart", "--retry-failed", "--relist"):
                yield redact(argument, self.secrets)
            hide = short is not None and argument == short[0]


def one_line(error: click.ClickException) -> str:
    """Return what is wrong with the command line, in one line."""
    text = error.format_message().rstrip(".")
    if getattr(error, "ctx", None) is None or "not available" in text:
        return text[:1].lower() + text[1:]
    return f"{text[:1].lower() + text[1:]} (see downloader --help)"
