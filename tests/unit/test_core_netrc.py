"""What a netrc says; its messages have no word of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.netrc import login_for, parse_netrc


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("secret", 1),
        ("login a password secret", 1),
        ("machine h login a\n pass secret", 2),
        ("machine h\nlogin a password secret more", 2),
        ('machine h login a\n\npassword "secret', 3),
        ('machine h login a password "secret"more', 1),
        ('machine h login a password "secret\\', 1),
        ("machine h login a password b\nmachine", 2),
        ('machine ""', 1),
        ("m\0a\0c\0h\0i\0n\0e\0", 1),
    ],
)
def test_line_that_cannot_be_read_is_named(text: str, line: int) -> None:
    with pytest.raises(ValueError, match=rf"^{line}$"):
        parse_netrc(text)


@pytest.mark.parametrize(
    ("text", "user", "login"),
    [
        ("", None, None),
        ("\ufeffmachine h login a password b", None, ("a", "b")),
        ("machine h\r\nlogin a\r\npassword b\r\n", None, ("a", "b")),
        ("machine h login a password \u00a0b\u2028", None, ("a", "\u00a0b\u2028")),
        ("machine h login a password #b", None, ("a", "#b")),
        ("machine H. login a password b", None, ("a", "b")),
        ("machine default login a password b", None, None),
        ("machine h", None, None),
        ("machine h\ndefault login a password b", None, ("a", "b")),
        ("machine h login a password", None, ("a", "")),
        ("machine h user a password b", None, ("a", "b")),
        ("machine h login a password b", "c", None),
        ("default login a password b\nmachine h login c password d", None, ("a", "b")),
        ("default login a password b\nmachine h login c password d", "c", ("c", "d")),
        ("default password b", "c", ("c", "b")),
        ("machine h password b\ndefault login a password no", None, ("", "b")),
        ("machine h login a\ndefault login b password no", None, ("a", "")),
        ("machine h login a password b\ndefault login c password d", "c", ("c", "d")),
        ("default login a\nmachine h login c password d", None, ("c", "d")),
        ("macdef m\nmachine h login no password no\n \t\nmachine h login a password b", None, ("a", "b")),
        ("machine h login a password b macdef m\nno", None, ("a", "b")),
    ],
)
def test_login_for_a_host(text: str, user: str | None, login: tuple[str, str] | None) -> None:
    assert login_for(parse_netrc(text), "h", user) == login


def test_default_is_left_out_where_it_must_not_follow() -> None:
    logins = parse_netrc("default login a password b\nmachine h login c password d")
    assert login_for(logins, "h", default=False) == ("c", "d")
    assert login_for(logins, "g", default=False) is None
    assert login_for(logins, "g") == ("a", "b")


@given(st.text(st.characters(exclude_characters=" \t\r\n\v\f"), min_size=1))
def test_no_character_of_a_password_is_lost(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    for written in (f'"{quoted}"', password) if password[0] != '"' else (f'"{quoted}"',):
        logins = parse_netrc(f"machine h login me password {written}\nmachine g login me password x")
        assert login_for(logins, "h") == ("me", password)
