"""The documents against the code: what they name is there, and what they count is what the code has.

What is found mechanically needs no entry here: paths, links, options, failure codes, tables. A sentence
with a number of the code stands in ``documented_numbers``: a change of either must change both.
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import dataclasses
import datetime
import re
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from documented_numbers import NUMBERS

import downloader.errors
from diagnostics import causes
from diagnostics.cli import _cli as diagnostics_cli
from diagnostics.scenarios_run import _command as scenarios_run
from downloader.cli.main import cli
from downloader.config.config import Config
from downloader.config.sink_kinds import SINK_KINDS
from downloader.config.source_kinds import SOURCE_KINDS
from downloader.core.digests import ALGORITHMS, HASHES
from downloader.core.executed_extensions import EXECUTED
from downloader.core.units import parse_time
from downloader.errors import FAILURES, DownloaderError
from downloader.reporting.manifest_formats import Row
from downloader.reporting.record import Report
from downloader.sinks.shards.publisher.columns import INFORMATION

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")),
    *("benchmarks/README.md", "diagnostics/README.md", "docker/README.md", "tests/faults/README.md"),
)
PARTS = ("downloader", "diagnostics", "tests", "benchmarks", "docker", "docs")
ROOMS = {path.parent.name: path.parent for path in (ROOT / "downloader").glob("*/__init__.py")}


@cache
def text_of(name: str) -> str:
    return (ROOT / name).read_text()


@cache
def flowing(name: str) -> str:
    """Return a document in one line, as a sentence may be broken anywhere."""
    return " ".join(text_of(name).split())


def section(name: str, title: str) -> str:
    """Return the text under a title, without what is under the next one of the same level."""
    level = title.partition(" ")[0]
    found = text_of(name).partition(f"\n{title}\n")[2]
    assert found, f"{name} has no {title}"
    return re.split(rf"\n#{{2,{len(level)}}} ", found)[0]


def table(text: str) -> list[list[str]]:
    """Return the cells of the first table in ``text``, without its head."""
    rows = re.search(r"(?:^\|.*\n)+", text + "\n", re.MULTILINE)
    assert rows
    lines = rows[0].splitlines()[2:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def quoted(text: str) -> list[str]:
    """Return what stands between single backquotes."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [
        " ".join(each.replace("\\|", "|").split()) for each in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose)
    ]


# paths


@cache
def files() -> frozenset[str]:
    """Return the files of the project, and the directories that they are in."""
    found = [path for part in PARTS for path in (ROOT / part).rglob("*") if "__pycache__" not in path.parts]
    return frozenset(str(path.relative_to(ROOT)) for path in found)


def is_ours(span: str) -> bool:
    """Return whether a quoted text is the path of a file or directory here: not that of a user's."""
    if not re.fullmatch(r"[\w.-]+(?:/[\w.-]+)*/?", span) or span.startswith("."):
        return False
    first = span.partition("/")[0]
    return ("/" in span and (first in PARTS or first in ROOMS)) or bool(
        re.search(r"[a-z]_?\w*\.(py|md|svg)$", span)
    )


def exists(span: str) -> bool:
    """Return whether there is such a file, by its path or the end of it; FORMAT is any word."""
    path = re.escape(span.rstrip("/")).replace("FORMAT", r"\w+")
    pattern = re.compile(rf"(?:.*/)?{path}(?:\.py)?")
    if any(pattern.fullmatch(each) for each in files()):
        return True
    module, _, name = span.rpartition(".")
    return bool(module) and any(
        re.search(rf"^\s*(?:def|class) {name}\b|^{name}\b", (ROOT / each).read_text(), re.MULTILINE)
        for each in files()
        if each.endswith(f"/{module}.py")
    )


# Files of applications that are examined, and the head of the list of modules.
USERS = {"downloader.py", "downloader/", "h11.py"}


@pytest.mark.parametrize("name", NAMES)
def test_every_path_is_there(name: str) -> None:
    made = set(re.findall(r"^`([^`]+)`:\n\n```", text_of(name), re.MULTILINE))  # by who follows the page
    spans = {span for span in quoted(text_of(name)) if is_ours(span)} - USERS - made
    assert {span for span in spans if not exists(span)} == set()


def anchors(name: str) -> set[str]:
    """Return the anchors of the titles of a document, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", text_of(name), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text_of(name)):
        path, _, anchor = target.partition("#")
        file = (ROOT / name).parent / path if path else ROOT / name
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(str(file.resolve().relative_to(ROOT))), target


def test_what_a_question_is_answered_with_is_defined_where_it_says() -> None:
    """``path`` (``Name``): the file at ``path`` has a definition of that name."""
    for question, answer in table(section("CONTRIBUTING.md", "## Where things are")):
        for path, names in re.findall(r"`([\w/.]+\.py)`,? \((`[^)]+`)\)", answer):
            found = [each for each in files() if f"/{each}".endswith(f"/{path}")]
            text = "".join((ROOT / each).read_text() for each in found)
            for name in quoted(names):
                assert re.search(rf"(?:def|class) {name.rpartition('.')[2]}\b", text), (question, name)


def defined(path: str, name: str) -> bool:
    """Return whether a module at ``path``, or at the end of it, defines or assigns ``name``."""
    texts = [(ROOT / each).read_text() for each in files() if f"/{each}".endswith(f"/{path}")]
    last = name.rpartition(".")[2]
    return any(
        re.search(rf"(?:def|class) {last}\b|^\s*{last}(?:: [^=\n]+)?(?: =|$)", text, re.M) for text in texts
    )


@pytest.mark.parametrize("name", NAMES)
def test_names_are_in_the_modules_that_are_said(name: str) -> None:
    """`` `module.py` (`Name`) ``, `` `Name` in `module.py` ``; `` `Class.attribute` `` of some module."""
    text = flowing(name)
    said = re.findall(r"`([\w/]+\.py)` \(`([\w.]+)`\)|`([\w.]+)` in `([\w/]+\.py)`", text)
    for path, inside, before, behind in said:
        if not (path or behind).endswith("test_node_losses.py"):
            assert defined(path or behind, inside or before), (path or behind, inside or before)
    for owner, attribute in re.findall(r"`([A-Z][a-z]\w+)\.([a-z_]+)(?:\([^`]*\))?`", text):
        paths = [
            each
            for each in files()
            if each.startswith(("downloader/", "diagnostics/")) and each.endswith(".py")
        ]
        homes = [each for each in paths if re.search(rf"^class {owner}\b", (ROOT / each).read_text(), re.M)]
        texts = [(ROOT / each).read_text() for each in homes]
        assert any(re.search(rf"\b{attribute}\b", text) for text in texts), f"{owner}.{attribute}"


# Rooms in rooms that the list has.
INNER = {
    "pipelined/": "http/pipelined",
    **{
        f"{path.parent.name}/": f"cluster/{path.parent.name}"
        for path in ROOMS["cluster"].glob("*/__init__.py")
    },
}


def test_the_list_of_modules_has_every_room() -> None:
    listed = re.search(r"```\ndownloader/\n(.*?)```", section("docs/design.md", "## Modules"), re.DOTALL)
    assert listed
    rooms: dict[str, str] = {}
    for line in listed[1].splitlines():
        word, rest = line.split(maxsplit=1)
        rooms[word if word.endswith("/") else "top"] = rest if word.endswith("/") else line
    assert {f"{name}/" for name in ROOMS} == set(rooms) - {"top", *INNER}
    for room, words in rooms.items():
        here = ROOT / "downloader" / {"top": "", **INNER}.get(room, room)
        for listing in re.split(r"[:;]| {3,}", words)[:1]:
            for name in re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", listing):
                assert (here / f"{name}.py").exists(), f"{room}{name}"


def contract(name: str) -> dict[str, str]:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return dict(parser[f"importlinter:contract:{name}"])


def test_the_layers_are_those_that_are_checked() -> None:
    page = section("CONTRIBUTING.md", "## Layers")
    shown = [line.strip() for line in page.splitlines() if line.startswith("    ")]
    checked = [line.replace(" | ", ", ") for line in contract("layers")["layers"].split("\n") if line]
    assert shown == checked[1:]  # but __main__


def test_the_contracts_name_every_kind_and_format() -> None:
    """A contract that leaves one out would hold, and say more than it checks."""

    def modules(*names: str) -> set[str]:
        return {
            word
            for name in names
            for line in contract(name).values()
            for word in re.findall(r"downloader[\w.]+", line)
        }

    for names, kinds in ((("sources",), SOURCE_KINDS), (("sink-kinds",), SINK_KINDS)):
        own = {each.partition(":")[0] for each in kinds._built_in.values()}
        assert modules(*names) == own
    formats = {
        f"downloader.sources.lists.{path.stem}"
        for path in (ROOT / "downloader/sources/lists").glob("rows_*.py")
    }
    assert modules("formats") == formats
    assert contract("testserver")["source_modules"].split() == [
        f"downloader.{line}"
        for line in re.findall(r"\w+", contract("layers")["layers"])
        if line not in ("__main__", "cli")
    ]


def test_every_folder_of_tests_is_described() -> None:
    described = {word for row in table(section("CONTRIBUTING.md", "## Tests")) for word in quoted(row[0])}
    there = {f"tests/{path.name}" for path in (ROOT / "tests").iterdir() if list(path.glob("**/test_*.py"))}
    assert there - described == {"tests/benchmarks"}


# options


def options_of(command: click.Command) -> dict[str, click.Option]:
    with click.Context(command) as context:
        given = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    return {name: each for each in given for name in (*each.opts, *each.secondary_opts)}


@cache
def commands() -> dict[str, dict[str, click.Option]]:
    """Return the options of each command, as it is written."""
    found = {f"downloader {name}": options_of(each) for name, each in cli.commands.items()}
    found["downloader"] = found.pop("downloader fetch")
    found |= {f"diagnostics {name}": options_of(each) for name, each in diagnostics_cli.commands.items()}
    found["diagnostics scenarios"] = options_of(scenarios_run)
    found["diagnostics"] = found["diagnostics check"]
    return found


# Of other programs, where they stand alone.
OTHERS = {"--target", "--disable-usage-stats"}


def command_of(words: list[str]) -> str:
    """Return which command the words of a line call; "" where it is none of ours, or an option alone."""
    while words and (words[0] in ("$", "…") or re.fullmatch(r"[A-Z_]+=\S*", words[0])):
        words = words[1:]
    line = " ".join(words)
    line = re.sub(
        r"^(?:RUN |script: |- run: |sh ')?(?:python\S* (?:-[IP] )*(?:-m )?)?"
        r"(downloader|diagnostics)(?:\.pyz)?\b",
        r"\1",
        line,
    )
    found = [name for name in commands() if line == name or line.startswith(f"{name} ")]
    return max(found, key=len, default="")


def used(name: str) -> Iterator[tuple[str, str, str]]:
    """Yield the options in a document, with the command, and what stands behind them."""
    text = text_of(name)
    lines = [line.strip() for line in re.findall(r"^ {4,}\S.*$", text, re.MULTILINE)]
    for line in (*lines, *quoted(text)):
        if line.startswith(("-- ", "--\n")):
            continue
        words = line.partition(" -- ")[0].split("   ")[0].split()
        command = "" if not words or words[0].startswith("--") else command_of(words)
        if words and (command or words[0].startswith("--")):
            for word, behind in zip(words, [*words[1:], ""], strict=True):
                if re.fullmatch(r"--[a-z][a-z-]+", word):
                    yield command, word, behind


@pytest.mark.parametrize("name", [name for name in NAMES if name != "benchmarks/README.md"])
def test_every_option_is_one(name: str) -> None:
    every = {option for options in commands().values() for option in options}
    for command, option, _ in used(name):
        assert option in (commands()[command] if command else every | OTHERS), f"{command} {option}"


@pytest.mark.parametrize("name", NAMES)
def test_every_word_of_an_option_is_one_of_its_words(name: str) -> None:
    """``--existing keep|fail``: both are choices of the option, by its metavar."""
    fetch = commands()["downloader"]
    for command, option, behind in used(name):
        metavar = fetch[option].metavar if command in ("", "downloader") and option in fetch else None
        words = set((metavar or "").split("|"))
        if words and all(re.fullmatch(r"[a-z0-9-]+", word) for word in words):
            chosen = set(re.sub(r"[.,;:)]$", "", behind).split("|"))
            assert chosen <= words | {""} or not re.fullmatch(r"[a-z0-9|-]+", behind), f"{option} {behind}"


def test_every_option_of_a_download_is_described() -> None:
    known = {
        word for name in NAMES for span in quoted(text_of(name)) for word in re.findall(r"--[a-z-]+", span)
    }
    every = {name for name in commands()["downloader"] if name.startswith("--")}
    assert every - known == {"--output", "--resume"}  # which are -o, and the default


def test_defaults_are_those_of_the_config() -> None:
    """The command line without options makes the Config that a program makes without any."""
    fetch = commands()["downloader"]
    fields = {field.name: field.default for field in dataclasses.fields(Config)}
    for option in set(fetch.values()):
        name, default = str(option.name), option.get_default(click.Context(cli.commands["fetch"]))
        if name not in fields or not isinstance(default, str | int | float):
            continue  # it has none, or that of an extension
        if isinstance(default, bool) != isinstance(fields[name], bool):
            continue  # a flag for what is a path in a Config
        if isinstance(default, str) and isinstance(fields[name], float):
            default = parse_time(default)
        words = {"auto": 0} if isinstance(fields[name], int) else {}
        default = words.get(default, default)
        assert default == fields[name] or not (default or fields[name]), name


def test_a_default_in_brackets_is_that_of_the_option() -> None:
    """``--size-column`` [`size`], ``--on-duplicate fail`` [default], ``fail`` [default] below it."""
    fetch, context = commands()["downloader"], click.Context(cli.commands["fetch"])
    usage = flowing("docs/usage.md")
    named = re.findall(r"`(--[a-z-]+)` \[`([a-z]+)`\]", usage)
    chosen = re.findall(r"`(--[a-z-]+) ([a-z]+)` \[default\]", usage)
    heads = re.findall(
        r"^\| `(--[a-z-]+)` \| \w+ \|\n\|[-|]+\n((?:\|.*\n)+)", text_of("docs/usage.md"), re.MULTILINE
    )
    chosen += [
        (option, word) for option, rows in heads for word in re.findall(r"`([a-z]+)` \[default\]", rows)
    ]
    assert {"--url-column", "--on-duplicate", "--checksums"} <= {option for option, _ in (*named, *chosen)}
    for option, default in (*named, *chosen):
        assert fetch[option].get_default(context) == default, option


# codes


def test_every_failure_code_is_documented_as_it_is() -> None:
    rows = {
        code: (meaning, retried)
        for code, meaning, retried in table(section("docs/usage.md", "## Failure codes"))
    }
    del rows["`http-NNN`"]
    assert rows == {
        f"`{code}`": (
            kind.meaning,
            "once" if code == "checksum-mismatch" else "yes" if kind.retry else "no",
        )
        for code, kind in FAILURES.items()
    }


@pytest.mark.parametrize("name", NAMES)
def test_files_fail_as_a_code_that_there_is(name: str) -> None:
    for codes in re.findall(r"\bfail(?:s|ed)?(?: alone)?,?(?: as| with) (`[a-z-]+`)", flowing(name)):
        assert codes.strip("`") in FAILURES, codes


def test_exit_codes_are_those_of_the_errors() -> None:
    errors = [
        each
        for each in vars(downloader.errors).values()
        if isinstance(each, type) and issubclass(each, DownloaderError)
    ]
    shown = {int(row[0]) for row in table(section("README.md", "## What you can rely on"))}
    assert shown == {0, 1, 130} | {each.exit_code for each in errors}
    help_text = cli.commands["fetch"].get_help(click.Context(cli.commands["fetch"]))
    assert shown == {
        int(code)
        for code in re.findall(r"^  (\d+) {2,}\S", help_text.partition("Exit codes:")[2], re.MULTILINE)
    }


def test_every_cause_of_the_diagnostics_is_documented() -> None:
    page = section("docs/diagnostics.md", "### Causes")
    shown = [code for row in table(page) for code in quoted(row[0])]
    assert len(shown) == len(set(shown))
    every = {entry.code for entry in causes.TABLE}
    assert set(shown) | {"unexplained"} == every
    limits = re.findall(r"^- `([a-z-]+)`", section("docs/diagnostics.md", "### The verdict"), re.MULTILINE)
    assert set(limits) == {entry.code for entry in causes.LIMITS}


# keys


def test_the_report_is_documented_key_by_key() -> None:
    rows = table(text_of("docs/report.md"))
    keys = [key for row in rows for key in quoted(row[0])]
    assert sorted(keys) == sorted(Report.__struct_fields__)
    failure = flowing("docs/report.md").rpartition("one line for each failed file:")[2]
    source = (ROOT / "downloader/reporting/report.py").read_text().partition("def write_failures")[2]
    assert quoted(failure) == re.findall(r'^ +"(\w+)": failure', source, re.MULTILINE)


def test_the_manifest_is_documented_column_by_column() -> None:
    columns = [key for row in table(section("docs/usage.md", "## Manifests")) for key in quoted(row[0])]
    assert columns == [name for name in Row.__struct_fields__ if name not in ("columns", "node")]


def test_lists_of_words_are_those_of_the_code() -> None:
    usage = flowing("docs/usage.md")
    assert set(re.findall(r"one of these \(`([^`]+)`\)", usage)[0].split()) == EXECUTED
    assert f"`--hash {'|'.join(HASHES)}`" in usage
    row = next(
        row
        for row in table(section("docs/usage.md", "## Lists").partition("| option")[2])
        if "--checksum-column" in row[0]
    )
    assert set(ALGORITHMS) <= set(quoted(row[1]))
    ours = {"bytes", *INFORMATION}
    assert set(quoted(re.findall(r"in the tables only: kept columns (.*?) keep their", usage)[0])) == ours


# numbers


WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
UNITS = ((30, "GiB"), (20, "MiB"), (10, "KiB"))


@cache
def value(name: str) -> Any:
    """Return the constant ``room.module.NAME``, or ``….Class.NAME``, of the downloader or the diagnostics.

    It is read from the source: a module of ``http`` can be imported in a patched process only.
    """
    *path, attribute = name.split(".")
    parts = [*path] if path[0] == "diagnostics" else ["downloader", *path]
    scope = [parts.pop()] if re.match(r"_?[A-Z]", parts[-1]) else []
    body = ast.parse((ROOT.joinpath(*parts).with_suffix(".py")).read_text()).body
    known: dict[str, Any] = {"struct": struct, "datetime": datetime}
    for outer in (*scope, ""):
        for node in body:
            if isinstance(node, ast.ClassDef) and node.name == outer:
                body = node.body
                break
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            source = getattr(node, "value", None)
            if target is not None and source is not None:
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                with contextlib.suppress(Exception):  # what is no constant
                    found = eval(ast.unparse(source), {**known})  # of our own source
                    several = found if isinstance(target, ast.Tuple) else [found]
                    known |= {ast.unparse(each): one for each, one in zip(names, several, strict=True)}
    assert attribute in known, name
    return known[attribute]


def shown(number: Any, form: str) -> str:
    """Return a number as a sentence has it; see ``documented_numbers``."""
    if form == "w":
        return WORDS[int(number)]
    if form == "b":
        bits, unit = next(
            (bits, unit) for bits, unit in UNITS if number >= 1 << bits and not number % (1 << bits)
        )
        return f"{int(number) >> bits} {unit}"
    if isinstance(number, float) and number.is_integer() and not form:
        number = int(number)
    return format(number, form)


def filled(sentence: str) -> str:
    """Return ``sentence`` with the numbers of the code."""
    defaults = {field.name: field.default for field in dataclasses.fields(Config)}

    def fill(field: re.Match[str]) -> str:
        source, form = re.fullmatch(r"(.*?)(?::([^:'\]]*))?", field[1]).groups()
        names = re.sub(r"\bConfig\.(\w+)", r"defaults['\1']", source)
        names = re.sub(
            r"(?<![\w'.])[a-z_]+(?:\.\w+)*\._?[A-Z]\w*(?:\.most\b)?",
            lambda name: f"value({name[0]!r})",
            names,
        )
        return shown(eval(names, {"value": value, "defaults": defaults}), form or "")

    return re.sub(r"\{([^}]*)\}", fill, sentence)


@pytest.mark.parametrize(
    ("name", "sentence"), [(name, each) for name, sentences in NUMBERS.items() for each in sentences]
)
def test_every_number_is_that_of_the_code(name: str, sentence: str) -> None:
    assert filled(sentence).lower() in flowing(name).lower()
