"""What is cut once is cut everywhere, and is not cut again with what follows it."""

from __future__ import annotations

import time

import pytest

from diagnostics import redaction
from diagnostics.command_lines import note_secrets, shown_command, shown_words
from diagnostics.redaction import note_environment, redact

KEY = "qX7zLongSecret99"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    redact("")
    monkeypatch.setattr(redaction, "_values", set())
    monkeypatch.setattr(redaction, "_quoted", {})


@pytest.mark.parametrize(
    "argv",
    [
        ["app", "--api-key", KEY],
        ["app", f"--password={KEY}"],
        ["app", "-u", f"admin:{KEY}"],
        ["mysql", f"-p{KEY}"],
        ["app", f"postgres://admin:{KEY}@h/d"],
        ["app", "--connection-string", f"postgres://admin:{KEY}@h/d"],
        ["app", f"https://h/?a=1&token={KEY}&b=2"],
        ["app", f'{{"auth": {{"pass": "{KEY}"}}}}'],
        ["app", f'{{"token": "{KEY}'],
        ["curl", "-H", f"Authorization: Bearer {KEY}"],
        ["curl", "-H", f"Authorization:{KEY}"],
        ["curl", "-H", f"Authorization: Token {KEY}"],
        ["curl", "-H", f"Cookie: a=1; b={KEY}; c=2"],
        ["sh", "-c", f"curl -H 'X-Api-Key: {KEY}' h; exec app"],
        ["sh", "-c", f"curl -H X-Api-Key:{KEY} h; exec app"],
        ["sh", "-c", f"export API_TOKEN={KEY};exec app"],
        ["sh", "-c", f"export API_TOKEN='{KEY}' B=1; exec app --password {KEY}"],
    ],
)
def test_what_is_cut_of_a_command_is_cut_of_all_text(argv: list[str]) -> None:
    assert KEY not in shown_words(argv)
    note_secrets(argv)
    assert redact(f"cannot log in with {KEY}: bad") == "cannot log in with ***: bad"
    assert redact("exec app of admin at h: port 80") == "exec app of admin at h: port 80"


def test_usual_words_and_numbers_stay() -> None:
    note_secrets(
        ["app", "--auth", "none", "--key", "8080", "--token-file", "/run/token", "--auth", "basic"]
    )
    text = "none of 8080 in /run/token is basic"
    assert redact(text) == text


@pytest.mark.parametrize("end", ["", "'", " token='a"])
def test_a_script_with_many_secrets_is_read_in_linear_time(end: str) -> None:
    began = time.process_time()
    note_secrets(["sh", "-c", "".join(f"token=value{number} x " for number in range(400)) + end])
    assert time.process_time() - began < 5
    assert redact("of value123, value399") == "of ***, ***"


def test_secrets_of_an_environment() -> None:
    note_environment({"API_TOKEN": KEY, "SECRET_FILE": "/run/secret", "HOME": "/home/a", "A": "plainvalue"})
    note_environment({"DATABASE_URL": "postgres://admin:s3cr3tpw@h/d"})
    assert redact(f"{KEY} s3cr3tpw /run/secret plainvalue admin") == "*** *** /run/secret plainvalue admin"


@pytest.mark.parametrize(
    "argv",
    [
        ["curl", "-H", f"Authorization: Bearer {KEY}"],
        ["app", f"--api-key={KEY}"],
        ["app", f'{{"token": "{KEY}'],
        ["app", "a" * 60, "-H", f"X-Api-Token: {KEY}"],
    ],
)
def test_what_was_cut_is_not_cut_again(argv: list[str]) -> None:
    for shown in (shown_words(argv), shown_command(argv)):
        text = f"{shown}: it ended (with {shown}): why"
        assert redact(redact(text)) == text
        assert redact(f"{shown} password=abcd") == f"{shown} password=***"
    said = redact("refused Authorization: Bearer x")
    assert redact(f"{said}; give another") == "refused Authorization: ***; give another"


def test_value_that_is_known_later_is_cut_of_what_was_cut_before() -> None:
    shown = shown_words(["curl", "login", KEY, "-H", "Authorization: Bearer x"])
    note_environment({"API_TOKEN": KEY})
    assert redact(f"{shown}: why") == "curl login *** -H Authorization: ***: why"
