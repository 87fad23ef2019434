from __future__ import annotations

import pytest

from diagnostics.command_lines import shown_command, without_secrets


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["app", "--password", "hunter2", "x"], "app --password *** x"),
        (["app", "--db-password", "hunter 2"], "app --db-password ***"),
        (["app", "-token", "abcd1234"], "app -token ***"),
        (["app", "--api-key", "zzz999", "--api-key=zzz999"], "app --api-key *** --api-key=***"),
        (["app", "--password", "--verbose"], "app --password --verbose"),
        (["app", "--max-tokens", "5", "--port", "80"], "app --max-tokens 5 --port 80"),
        (["app", "https://u:pw@host/?token=abcd"], "app https://***@host/?token=***"),
        (["app", "postgres://u:pwpw@h/d", "API_TOKEN=ee55ff"], "app postgres://***@h/d API_TOKEN=***"),
        (["curl", "-H", "Authorization: Bearer abcdef"], "curl -H Authorization: ***"),
        (["sh", "-c", "app --password 'hunter 2' -v"], "sh -c app --password *** -v"),
        (["app", "-u", "admin:hunter2", "--proxy-user", "p:abcd1"], "app -u admin:*** --proxy-user p:***"),
        (["docker", "run", "-u", "1000"], "docker run -u 1000"),
        (["app", '{"auth": {"user": "a", "pass":"hunter2"}}'], 'app {"auth": {"user": "a", "pass":"***"}}'),
        (["app", '{"key":"abcd", "port": 80}'], 'app {"key":"***", "port": 80}'),
        (["app", r"{\"token\":\"abcd\"}"], r"app {\"token\":\"***\"}"),
        (["sshpass", "-p", "hunter2", "ssh", "h"], "sshpass -p *** ssh h"),
        (["mysql", "-uroot", "-phunter2", "-P", "33"], "mysql -uroot -p*** -P 33"),
        (["app", "-p", "8080"], "app -p 8080"),
        (["sh", "-c", 'exec app --api-key  zzz999; echo "--token" x'], None),
    ],
)
def test_secrets_of_a_command_are_cut(argv: list[str], shown: str | None) -> None:
    cut = " ".join(without_secrets(argv))
    assert not any(secret in cut for secret in ("hunter", "abcd", "zzz999", "pwpw", "ee55ff"))
    if shown is not None:
        assert cut == shown


def test_a_long_command_is_shortened() -> None:
    assert shown_command(["app", "x" * 100]) == f"app {'x' * 75}…"
    assert shown_command(["app", "a b"]) == "app 'a b'"
    assert shown_command(["app", "https://u:p@h/", "--key", "x"]) == "app https://***@h/ --key ***"
    assert shown_command(["app", "https://u:p@h/ x"]) == "app 'https://***@h/ x'"
