"""Keys as services issue them are cut from messages under any name; words with their beginnings stay."""

from __future__ import annotations

import time

import pytest

from downloader.core.redact import redact

LETTERS = "aB3dE6gH9j"
KEYS = {
    "stripe": f"sk_live_{LETTERS * 2}",
    "stripe-test": f"sk_test_{LETTERS * 2}",
    "stripe-restricted": f"rk_live_{LETTERS * 2}",
    "stripe-webhook": f"whsec_{LETTERS * 3}",
    "github": f"ghp_{LETTERS * 3}",
    "github-oauth": f"gho_{LETTERS * 3}",
    "github-fine": f"github_pat_{LETTERS * 2}_{LETTERS * 3}",
    "gitlab": f"glpat-{LETTERS}_{LETTERS}",
    "slack-bot": f"xoxb-123456789012-{LETTERS}",
    "slack-user": f"xoxp-123456789012-{LETTERS.lower()}",
    "amazon": "AKIAIOSFODNN7EXAMPLE",
    "google": f"AIza{LETTERS * 3}-{LETTERS}",
    "sendgrid": f"SG.{LETTERS * 2}.{LETTERS * 4}",
    "hugging-face": f"hf_{'aBcDe' * 7}",
    "npm": f"npm_{LETTERS * 3}abcdef",
    "pypi": f"pypi-AgEIcHlwaS5vcmc{LETTERS}",
    "openai": f"sk-proj-{LETTERS * 2}-{LETTERS}",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N",
    "jwt-unsigned": "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.",
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "pem-in-a-line": "-----BEGIN PRIVATE KEY----- MIIEow -----END PRIVATE KEY-----",
    "pem-cut": "-----BEGIN OPENSSH PRIVATE KEY-----\nMIIEow",
}
WORDS = """
SG.foo SG.Sudoku.Solver sk_live sk_test_run ghp_page github_pat_example glpat-docs AKIA AKIAIOS AIzawa
xoxb-words-without-digits hf_transformers_cache npm_config_user_agent npm_lifecycle_event eyJ eyJ.a.b
pypi-attestations-for-packages pypi-2024-names-of-packages sk-learn task-0123456789abcdef0123456789abcdef
risk_live_0123456789abcdef -----BEGIN -----END
"""


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_key_is_cut_wherever_it_stands(key: str) -> None:
    assert redact(f"bad {key}") == "bad ***"
    if "\n" not in key and " " not in key:
        for text in (f"x={key}", f"{{'a': '{key}'}}", f"({key}, 1)", f"https://h/{key}/a", rf"a\n{key}"):
            assert key not in redact(text)
            assert redact(text).startswith(text[:1])
        assert redact(f"bad {key} here") == "bad *** here"


@pytest.mark.parametrize("word", [*WORDS.split(), "-----BEGIN CERTIFICATE-----\nMIIE"])
def test_usual_word_stays(word: str) -> None:
    assert redact(f"see {word} there") == f"see {word} there"


@pytest.mark.parametrize(
    "unit",
    [
        *("eyJ-", "eyJa.", f"eyJ{LETTERS}.", "SG.", f"SG.{LETTERS * 2}", "pypi-", "xoxb-", "github_pat_"),
        *("sk-", "sk-ant-", "AIza", "ghp_", "%20eyJ", r"\neyJ-", "-----BEGIN ", "-----BEGIN A KEY-----"),
    ],
)
def test_keys_are_found_in_linear_time(unit: str) -> None:
    def took(length: int) -> float:
        text = unit * (length // len(unit))
        began = time.process_time()
        redact(text)
        return time.process_time() - began

    assert took(60000) < 20 * max(took(6000), took(6000), 0.005)
