"""``python -m benchmarks``: measure, and write the table that the README shows."""

from __future__ import annotations

import io
import json
import platform
from importlib import metadata
from pathlib import Path

import click
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from benchmarks.main_job import SCENARIOS

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
BEGIN, END = "<!-- benchmarks: begin -->", "<!-- benchmarks: end -->"


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option("--quick", is_flag=True, help="Small counts, a minute or two; results are not kept.")
def main(names: tuple[str, ...], quick: bool) -> None:
    """Run the scenarios NAMES (default: all), one after another."""
    kept = HERE / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() and not quick else {}
    for name in names or SCENARIOS:
        click.echo(f"{name} …", err=True)
        results[name] = SCENARIOS[name](quick)
        if not quick:
            kept.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    table = as_markdown(results)
    click.echo(table)
    if not quick:
        insert(table)


def as_markdown(results: dict[str, list[dict[str, str]]]) -> str:
    """The results as one Markdown table, with the machine named."""
    table = Table("what", "measured", "beside it", "ratio", box=MARKDOWN)
    for name in SCENARIOS:
        for row in results.get(name, []):
            table.add_row(row["what"], row["figure"], row["beside"], row["ratio"])
    text = io.StringIO()
    Console(file=text, width=220).print(table)
    lines = [line.rstrip() for line in text.getvalue().strip().splitlines()]
    return "\n".join([*lines, "", machine()])


def machine() -> str:
    """What the figures were measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    versions = ", ".join(f"{name} {metadata.version(name)}" for name in ("gevent", "requests", "urllib3"))
    return (
        f"Measured on {model}, server on one core and client on another, "
        f"Python {platform.python_version()}, {versions}; 100-byte files where nothing else is said."
    )


def insert(table: str) -> None:
    """Put ``table`` between the marks in the README."""
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")


if __name__ == "__main__":
    main()
