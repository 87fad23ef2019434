"""Format tables and figures."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

__all__ = ["figure", "markdown"]


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is text, the others are figures."""
    table = Table(box=MARKDOWN)
    for position, name in enumerate(header):
        table.add_column(name, justify="right" if position else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    text = io.StringIO()
    Console(file=text, width=1000).print(table)
    return "\n".join(line.rstrip() for line in text.getvalue().strip().splitlines())


def figure(rate: float) -> str:
    """Return a rate with as many digits as are significant."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
