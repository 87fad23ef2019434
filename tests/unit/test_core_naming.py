"""SafeName: reversible, injective, and harmless for any name of a server."""

from __future__ import annotations

import contextlib
import hashlib
import re
import string
import unicodedata
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from downloader.core.naming import (
    BadName,
    SafeName,
    escape,
    escape_all,
    hashed,
    list_path,
    literal_path,
    mirror_path,
    quote_all,
    quote_name,
    shown,
    unescape,
    url_name,
    url_path,
)
from downloader.core.redact import redact, redact_url

# Every kind of difficult character, often: `st.text()` alone would rarely draw them.
NASTY = st.sampled_from(list("./\\%\0\x1b\n\r~-?:& aZ2eEfF\x7f\x85\u2028\u202e\ud800\udc80é😀"))
TEXT = st.text(NASTY | st.characters(exclude_categories=()), max_size=60) | st.sampled_from(
    [".downloader", ".downloader/journal", ".DOWNLOADER", "..", ".", "...", "%2E", "%", "%00"]
)
BYTES = st.binary(max_size=80) | TEXT.map(lambda text: text.encode("utf-8", "surrogatepass"))
NAMES = TEXT | BYTES
KEY = bytes(range(32))


def as_bytes(raw: str | bytes) -> bytes:
    return raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")


def assert_safe(name: str) -> None:
    assert name not in ("", ".", "..")
    assert "/" not in name
    assert "\\" not in name
    assert not name.startswith(".downloader")
    assert len(name.encode()) <= 255  # strict: no surrogate is left
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") for char in name)


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        # tests/faults/README.md, Names
        ("..", "%2E."),
        (".", "%2E"),
        ("a/../../b", "a%2F..%2F..%2Fb"),
        ("/etc/passwd", "%2Fetc%2Fpasswd"),
        ("a\0b", "a%00b"),
        ("\ud800", "%ED%A0%80"),
        ("\udcff", "%ED%B3%BF"),
        ("a\nb", "a%0Ab"),
        ("\x1b[31mred", "%1B[31mred"),
        ("a/b", "a%2Fb"),
        ("%2e%2e%2f", "%252e%252e%252f"),
        ("-rf", "-rf"),
        ("CON", "CON"),
        ("nul.txt", "nul.txt"),
        ("e\u0301", "e\u0301"),
        ("\u00e9", "\u00e9"),
        # the rest of the contract
        ("%", "%25"),
        ("..\\..\\x", "..%5C..%5Cx"),
        (".downloader", "%2Edownloader"),
        (".downloader.tmp", "%2Edownloader.tmp"),
        (".DownLoader", "%2EDownLoader"),
        (".DOWNLOADER. ", "%2EDOWNLOADER. "),
        (".down\ufe0floader", "%2Edown\ufe0floader"),
        ("\ufe0f.Downloader", "%EF%B8%8F.Downloader"),
        (".\u034f.", "%2E\u034f."),
        (".down", ".down"),
        (".bashrc", ".bashrc"),
        ("...", "..."),
        ("a b?c:d*", "a b?c:d*"),
        ("\x7f\x85", "%7F%C2%85"),
        ("\u2028\u2029", "%E2%80%A8%E2%80%A9"),
        ("exe\u202egpj", "exe%E2%80%AEgpj"),
        ("\ufeffa", "%EF%BB%BFa"),
        (b"\xff\xfe", "%FF%FE"),
        (b"caf\xc3\xa9", "café"),
        (b"\xed\xa0\x80", "%ED%A0%80"),
        (b"plain.txt", "plain.txt"),
    ],
)
def test_escape(raw: str | bytes, name: str) -> None:
    assert escape(raw) == name
    assert unescape(escape(raw)) == as_bytes(raw)
    assert_safe(name)


@pytest.mark.parametrize("raw", ["a" * 255, "é" * 127, "😀" * 63, "%" * 85, b"\xff" * 85])
def test_longest_name(raw: str | bytes) -> None:
    assert unescape(escape(raw)) == as_bytes(raw)


@pytest.mark.parametrize(
    "raw",
    ["", b"", "a" * 256, "a" * 4096, b"a" * 256, "é" * 128, "%" * 86, "/" * 200, b"\xff" * 86],
)
def test_bad_name(raw: str | bytes) -> None:
    with pytest.raises(BadName):
        escape(raw)


def test_bad_name_message_is_short_and_harmless() -> None:
    for raw in ("\x1b[2J\n" * 100, b"\x1b\xff" * 500, "\ud800" * 300):
        with pytest.raises(BadName) as info:
            escape(raw)
        message = str(info.value)
        assert message.isprintable()
        assert len(message) < 220
        message.encode()


def test_different_names_stay_different() -> None:
    family = ["a", "A", "a/b", "a%2Fb", "a%252Fb", "\u00e9", "e\u0301", b"\xe9", "%E9", ".", "%2E"]
    assert len({escape(raw) for raw in family}) == len(family)


@given(NAMES)
def test_escape_is_reversible_and_safe(raw: str | bytes) -> None:
    try:
        name = escape(raw)
    except BadName:
        assert not raw or len(as_bytes(raw)) > 85
        return
    assert_safe(name)
    assert unescape(name) == as_bytes(raw)
    assert escape(as_bytes(raw)) == name


@given(NAMES, NAMES)
def test_escape_is_injective(one: str | bytes, other: str | bytes) -> None:
    try:
        same = escape(one) == escape(other)
    except BadName:
        return
    assert same == (as_bytes(one) == as_bytes(other))


def test_every_character_that_unicode_calls_a_control_is_escaped() -> None:
    # Of this Python's Unicode; the table may know characters that this Python does not, and the Egyptian
    # format controls that were added late, and these only.
    newer = set(map(chr, range(0x13430, 0x13440)))
    for code in range(0x110000):
        char = chr(code)
        control = unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs")
        if control or char in "%/\\":
            assert escape("x" + char).startswith("x%"), hex(code)
        elif char not in newer and unicodedata.category(char) != "Cn":
            assert escape("x" + char) == "x" + char, hex(code)


@given(st.lists(TEXT | st.sampled_from(["a", "b.txt", "-x"]), max_size=8))
def test_escape_all_is_escape_for_each_or_none(names: list[str]) -> None:
    fast = escape_all(names)
    if fast is not None:
        assert fast is names
        assert [escape(name) for name in names] == names
    else:
        plain = [
            name.isascii() and name.isprintable() and name[:1] != "." and len(name) in range(1, 256)
            for name in names
        ]
        assert not all(plain) or any(char in name for name in names for char in "%/\\")


@pytest.mark.parametrize(
    "bad",
    ["", "a/b", "/", "a/", "/a", ".", "..", ".x", "%", "é", "a\nb", "a" * 256, "\\", "\ud800"],
)
def test_escape_all_with_separators_in_names(bad: str) -> None:
    for names in ([bad], [bad, "a"], ["a", bad], ["a", bad, "a"]):
        assert escape_all(names) is None
    assert escape_all(["a"] * 3) == ["a"] * 3
    assert escape_all(["a" * 255, "b.c"]) is not None
    assert escape_all([]) == []


@given(st.lists(st.sampled_from([1, 2, 100, 127, 128, 254, 255]), min_size=1, max_size=12), st.data())
def test_escape_all_finds_the_one_that_is_too_long(lengths: list[int], data: st.DataObject) -> None:
    names = ["n" * length for length in lengths]
    assert escape_all(names) is names
    place = data.draw(st.integers(0, len(names)))
    assert escape_all([*names[:place], "n" * data.draw(st.integers(256, 600)), *names[place:]]) is None


@given(st.lists(TEXT | st.sampled_from(["a", "b.txt", "-x", "~"]), min_size=1, max_size=8))
def test_quote_all_is_quote_name_for_each_or_none(raw: list[str]) -> None:
    names = []
    for each in raw:
        with contextlib.suppress(BadName):
            names.append(escape(each))
    if not names:
        return
    fast = quote_all(list(names))
    if fast is not None:
        assert fast == [quote_name(name).encode() for name in names]
    else:
        unreserved = {*string.ascii_letters, *string.digits, *"-._~"}
        assert not all(unreserved.issuperset(name) for name in names)


@pytest.mark.parametrize("odd", ["a/b", "/", "é", "%2E", "a b", "\ud800", "+"])
def test_quote_all_with_separators_in_names(odd: str) -> None:
    for names in ([odd], [odd, "a"], ["a", odd], ["a", odd, "a"]):
        assert quote_all(names) is None
    assert quote_all(["a-b_c.d~e", "Z9"]) == [b"a-b_c.d~e", b"Z9"]


def test_hashed_layout_path() -> None:
    digest = hashlib.blake2b("größe".encode(), digest_size=2).hexdigest()
    assert hashed(escape("größe")) == f"{digest[:2]}/{digest[2:]}/größe"


@pytest.mark.parametrize(
    ("segments", "path"),
    [
        (["a", "b"], "a/b"),
        (["a", "", "b"], "a/%/b"),
        (["", "etc", "passwd"], "%/etc/passwd"),
        (["..", "..", "x"], "%2E./%2E./x"),
        (["a/b"], "a%2Fb"),
        (["%"], "%25"),
        ([b"\xff", "."], "%FF/%2E"),
        ([".downloader", "journal"], "%2Edownloader/journal"),
    ],
)
def test_mirror_layout_path(segments: list[str | bytes], path: str) -> None:
    assert mirror_path(segments) == path
    back = [unescape(SafeName(segment)) for segment in path.split("/")]
    assert back == [as_bytes(segment) for segment in segments]


@given(st.lists(TEXT | BYTES, min_size=1, max_size=6))
def test_mirror_path_is_reversible_and_stays_inside(segments: list[str | bytes]) -> None:
    try:
        path = mirror_path(segments)
    except BadName:
        return
    parts = path.split("/")
    for part in parts:
        assert_safe(part)
    assert [unescape(SafeName(part)) for part in parts] == list(map(as_bytes, segments))


def test_mirror_path_length_is_limited() -> None:
    assert mirror_path(["a" * 255] * 16)
    with pytest.raises(BadName):
        mirror_path(["a" * 255] * 17)
    with pytest.raises(BadName):
        mirror_path([])


@pytest.mark.parametrize(
    ("url", "name", "path"),
    [
        ("http://h/a/b.txt", "b.txt", "h/a/b.txt"),
        ("http://h", "index.html", "h/index.html"),
        ("http://h/a/", "index.html", "h/a/index.html"),
        ("HTTPS://Host.Example:443/x", "x", "host.example/x"),
        ("https://h:80/x", "x", "h:80/x"),
        ("http://h:080/x", "x", "h/x"),
        ("http://h:/x", "x", "h/x"),
        ("http://h:8080/x#frag?no", "x", "h:8080/x"),
        ("http://[::1]:8080/x", "x", "[::1]:8080/x"),
        ("http://[::1]/x", "x", "[::1]/x"),
        ("http://h/caf%C3%A9%20x", "café x", "h/café x"),
        ("http://h/a%2Fb", "a%2Fb", "h/a%2Fb"),
        ("http://h/%2e%2e%2f", "..%2F", "h/..%2F"),
        ("http://h/%2e%2e", "%2E.", "h/%2E."),
        ("http://h/../../etc/passwd", "passwd", "h/%2E./%2E./etc/passwd"),
        ("http://h//a", "a", "h/%/a"),
        ("http://h/%00", "%00", "h/%00"),
        ("http://h/%zz%", "%25zz%25", "h/%25zz%25"),
        ("http://h/x?b=2&a=1", "x?b=2&a=1", "h/x?b=2&a=1"),
        ("http://h/?q=a/b", "index.html?q=a%2Fb", "h/index.html?q=a%2Fb"),
        ("http://h/x?", "x", "h/x"),
        ("http://h/x?sv=1&page=2", "x?sv=1&page=2", "h/x?sv=1&page=2"),
        ("http://h/x?&&", "x?&&", "h/x?&&"),
        ("http://h/img@2x.png", "img@2x.png", "h/img@2x.png"),
        ("http://h/a=b/c=d", "c=d", "h/a=b/c=d"),
        (
            "http://h/Basic%20training:%20cookie:%20x",
            "Basic training: cookie: x",
            "h/Basic training: cookie: x",
        ),
        ("http://../x", "x", "%2E./x"),
        ("http://.downloader/journal", "journal", "%2Edownloader/journal"),
        ("http://h/\ud800", "%ED%A0%80", "h/%ED%A0%80"),
    ],
)
def test_url_name_and_path(url: str, name: str, path: str) -> None:
    assert url_name(url, KEY) == name
    assert url_path(url, KEY) == path
    assert url_path(url, None) == path


# `~` marks the digest.
@pytest.mark.parametrize(
    ("url", "name", "path"),
    [
        ("http://h/x?token=S3CRET", "x~", "h/x~"),
        ("http://h/x.tar.gz?token=S3CRET", "x.tar~.gz", "h/x.tar~.gz"),
        ("http://h/.x?token=S3CRET", ".x~", "h/.x~"),
        ("http://h/?code=S3CRET", "index~.html", "h/index~.html"),
        ("http://h/x?a=1&to%6Ben=S3CRET&X-Amz-Signature=ff", "x~?a=1", "h/x~?a=1"),
        ("http://h/x?a=1;key=S3CRET", "x~?a=1;key", "h/x~?a=1;key"),
        ("http://h/x.do;jsessionid=S3CRET?a=1", "x.do;jsessionid~?a=1", "h/x.do;jsessionid~?a=1"),
        ("http://h/a;sid=S3CRET/x", "x", "h/a;sid~/x"),
        ("http://h/a%3Bsid%3DS3CRET", "a;sid~", "h/a;sid~"),
        ("http://h/token=S3CRET", "token~", "h/token~"),
        ("http://h/x?url=https://h/f?token=S3CRET", "x~?url=https:%2F%2Fh%2Ff?token",
         "h/x~?url=https:%2F%2Fh%2Ff?token"),
        ("http://h/x?url=https%3A%2F%2Fh%2Ff%3Ftoken%3DS3CRET", "x~?url", "h/x~?url"),
        ("http://h/x?u=http://me:S3CRET@h/", "x~?u=http:%2F%2Fh%2F", "h/x~?u=http:%2F%2Fh%2F"),
        ("http://h/x?u=http%3A%2F%2Fme%3AS3CRET%40h", "x~?u", "h/x~?u"),
        ("http://h/https:%2F%2Fme:S3CRET@h%2Fx.png", "https:%2F%2Fh%2Fx~.png",
         "h/https:%2F%2Fh%2Fx~.png"),
        ("http://me:S3CRET@h:8080/x", "x", "h:8080~/x"),
        ("http://S3CRET@H:80/x", "x", "h~/x"),
        ("http://token=S3CRET/x", "x", "token~/x"),
        ("http://h/%3Ftoken=S3CRET", "?token~", "h/?token~"),
        ("http://h/http://me:S3CRET@b/x.png", "x.png", "h/http:/%/b~/x.png"),
        ("http://h/http:/me%3AS3CRET%40b.png", "b~.png", "h/http:/b~.png"),
        ("http://h/http://me:a?S3CRET@b", "b~", "h/http:/%/b~"),
        ("http://h/sig=S3CRET.jpg", "sig~.jpg", "h/sig~.jpg"),
        ("http://h/a/token%3DS3CRET.mp4?x=1", "token~.mp4?x=1", "h/a/token~.mp4?x=1"),
        ("http://h/token=a.S3CRET", "token~", "h/token~"),
    ],
)  # fmt: skip
def test_digest_replaces_a_secret_in_a_name(url: str, name: str, path: str) -> None:
    found = [url_name(url, KEY), url_path(url, KEY)]
    assert [re.sub("%~[a-z2-7]{16}", "~", text) for text in found] == [name, path]
    assert url_path(url, None) == path.replace("~", "")
    assert found == [url_name(url, KEY), url_path(url, KEY)]
    for text in (*found, url_path(url, None)):
        assert "S3CRET" not in text
        assert redact(text) == text
    if "~" in path:
        assert url_path(url, bytes(32)) != found[1]  # without the key no guess can be tested
        assert url_path(url.replace("S3CRET", "guess"), KEY) != found[1]


@pytest.mark.parametrize("name", ["x" * 240, "%FF" * 80, "é" * 120, "x" * 5 + "." + "y" * 8])
@pytest.mark.parametrize("query", ["", "a=" + "é" * 110 + "&", "é" * 130 + "&"])
def test_a_digest_fits_into_every_name(name: str, query: str) -> None:
    found = {url_name(f"http://h/{name}?{query}token={number}", KEY) for number in range(3)}
    assert len(found) == 3
    for each in found:
        assert_safe(each)


# The non-secret part of a URL; nothing of it is normalized away.
PLAIN = st.text("abXY019-_~", min_size=1, max_size=5)
SECRET = st.text("ΑΒΓΔΕΖΗΘ", min_size=3, max_size=9)
SECRET_NAME = st.sampled_from(
    ["token", "key", "code", "session", "sig", "api_key", "X-Amz-Signature", "my_secret"]
)


@st.composite
def urls(draw: st.DrawFn) -> tuple[str, str]:
    """Draw a URL, and the secret that is somewhere in it, wrapped in one way or another."""
    secret = draw(SECRET)
    name, plain = draw(SECRET_NAME), draw(PLAIN)
    form = draw(st.sampled_from([
        "http://h/{p}?{n}={s}", "http://h/{p}?{n}={s}&a={p}", "http://h/{p}?a={p}&{n}={s}",
        "http://h/{p}/x;{n}={s}", "http://h/{p};{n}={s}/x.txt", "http://me:{s}@h/{p}", "http://{s}@h/{p}",
        "http://h/x?u=http://h/?{n}={s}", "http://h/{p}?u=http://me:{s}@h/x&b={p}",
        "http://h/x?u={q}&b={p}", "http://h/{p}?u=http%3A%2F%2Fme%3A{s}%40h", "http://h/{p}%3F{n}={s}",
        "http://h/x?a={p};{n}={s}", "http://h/x?a[key]={s}", "http://h/{q}", "http://h/{q}/x",
    ]))  # fmt: skip
    inner = quote(f"http://h/{plain}?{name}={secret}", safe="")
    return form.format(p=plain, n=name, s=secret, q=inner), secret


@given(urls(), urls())
def test_names_contain_no_secret_and_differ_as_urls_do(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    for url, secret in (one, other):
        for name in (url_name(url, KEY), url_path(url, KEY), url_path(url, None)):
            assert secret not in name
            assert quote(secret) not in name
            assert redact(name) == name
            assert redact_url(f"/{name}") == f"/{name}"
    assert (url_path(one[0], KEY) == url_path(other[0], KEY)) == (one[0] == other[0])


@given(urls(), SECRET)
def test_names_in_one_directory_differ_where_secrets_do(drawn: tuple[str, str], other: str) -> None:
    url, secret = drawn
    changed = url.replace(secret, other).replace(quote(secret), quote(other))
    assert changed == url or url_path(url, KEY) != url_path(changed, KEY)
    # Directory and userinfo are in no name of the flat layout.
    if url.rpartition("/")[2] != changed.rpartition("/")[2]:
        assert url_name(url, KEY) != url_name(changed, KEY)


@given(
    st.text(NASTY | st.sampled_from(list("=&;#@")), max_size=40),
    SECRET_NAME,
    SECRET,
    st.sampled_from("?&;"),
)
def test_no_secret_in_a_name_in_any_context(junk: str, name: str, secret: str, separator: str) -> None:
    junk = junk.replace("#", "").replace("\n", "")
    for url in (
        f"http://h/{junk}{separator}{name}={secret}",
        f"http://h/a{separator}{name}={secret}&{junk}",
        f"http://h/x?{junk}{separator}{name}={secret}",
        f"http://me:{secret}@h/{junk}",
    ):
        for text in (url_path(url, KEY), url_name(url, KEY)):
            assert secret not in text
            for part in text.split("/"):
                assert redact_url(f"/{part}") == f"/{part}"


@pytest.mark.parametrize(
    ("url", "name", "path"),
    [
        ("http://h/wiki/File:Me@home.png", "File:Me@home.png", "h/wiki/File:Me@home.png"),
        ("http://h/10%3A30/i@2x.png?t=1:2&m=a@b", "i@2x.png?t=1:2&m=a@b", "h/10:30/i@2x.png?t=1:2&m=a@b"),
        ("http://h/web/http://b.example/a:b@c.png", "a:b@c.png", "h/web/http:/%/b.example/a:b@c.png"),
        ("http://h/a?b", "a?b", "h/a?b"),
        ("http://h/a%3Fb", "a?b", "h/a%3Fb"),
        ("http://h/a%3F?b?c", "a??b?c", "h/a%3F?b?c"),
    ],
)
def test_names_of_paths_that_look_like_logins_and_queries(url: str, name: str, path: str) -> None:
    """Each has its own path in a mirror."""
    assert url_name(url, KEY) == name
    assert url_path(url, KEY) == path
    assert redact_url(url) == url


def test_names_of_a_job_begun_before() -> None:
    assert re.fullmatch("h/home%~[a-z2-7]{16}.png", url_path("http://h/File:Me@home.png", KEY, naming=4))
    assert re.fullmatch("sig%~[a-z2-7]{16}", url_name("http://h/sig=xyz.jpg", KEY, naming=4))
    assert url_path("http://h/a%3Fb", KEY, naming=4) == "h/a?b"
    assert url_name("http://h/a.jpg?hmac=abc", KEY, naming=3) == "a.jpg?hmac=abc"
    assert url_name("http://h/a.jpg?temp_url_sig=abc", KEY, naming=6) == "a.jpg?temp_url_sig=abc"
    assert url_name("http://h/a.jpg?session_key=abc", KEY, naming=7) == "a.jpg?session_key=abc"
    assert re.fullmatch("a%~[a-z2-7]{16}.jpg", url_name("http://h/a.jpg?session_key=abc", KEY))
    for name in ("db_pwd", "user_session", "http_auth", "userpass", "pat", "hm"):
        assert url_name(f"http://h/a.jpg?{name}=abc", KEY, naming=7) == f"a.jpg?{name}=abc"
    for name in ("signal", "max_tokens", "token_count", "secretary"):
        assert re.fullmatch("a%~[a-z2-7]{16}.jpg", url_name(f"http://h/a.jpg?{name}=abc", KEY, naming=7))
        assert url_name(f"http://h/a.jpg?{name}=abc", KEY) == f"a.jpg?{name}=abc"


@pytest.mark.parametrize("url", ["", "x", "/a/b", "h/x", "http:/x", "http:///x", "mailto:a@b"])
def test_url_that_gives_no_name(url: str) -> None:
    with pytest.raises(BadName):
        url_path(url, KEY)


@given(TEXT.map(lambda text: "http://" + text) | TEXT)
def test_no_url_leads_outside(url: str) -> None:
    try:
        path, name = url_path(url, KEY), url_name(url, KEY)
    except BadName:
        return
    assert_safe(name)
    for part in path.split("/"):
        assert_safe(part)


@pytest.mark.parametrize(
    ("raw", "quoted"),
    [
        ("plain-1_2.3~", "plain-1_2.3~"),
        ("a b", "a%20b"),
        ("a/b", "a%2Fb"),
        ("50%", "50%25"),
        ("?&=+#", "%3F%26%3D%2B%23"),
        ("é", "%C3%A9"),
        (b"\xff", "%FF"),
        ("..", "%2E%2E"),
        (".", "%2E"),
        ("...", "..."),
        (".downloader", ".downloader"),
    ],
)
def test_quote_name(raw: str | bytes, quoted: str) -> None:
    assert quote_name(escape(raw)) == quoted


@given(NAMES)
def test_server_receives_its_own_name(raw: str | bytes) -> None:
    from urllib.parse import unquote_to_bytes

    try:
        quoted = quote_name(escape(raw))
    except BadName:
        return
    assert unquote_to_bytes(quoted) == as_bytes(raw)
    assert quoted.isascii()
    assert not set(quoted) & set("/?#\\ ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("a\nb\x1b[0m", "a\\nb\\x1b[0m"),
        ("\ud800\u202e", "\\ud800\\u202e"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 119 + "…"),
        ("\n" * 60, "\\n" * 60),
        ("\n" * 61, "\\n" * 59 + "…"),
        ("x" * 118 + "\n", "x" * 118 + "\\n"),
        ("x" * 119 + "\n", "x" * 119 + "…"),
        ("x" * 120 + "\n", "x" * 119 + "…"),
        ("é" * 3, "ééé"),
    ],
)
def test_shown_escapes_control_characters(text: str, expected: str) -> None:
    assert shown(text) == expected


@given(st.text(NASTY | st.characters(exclude_categories=()), max_size=300))
def test_shown_is_one_harmless_line(text: str) -> None:
    out = shown(text)
    assert len(out) <= 120
    out.encode()
    assert not any(unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") for char in out)


@pytest.mark.parametrize("name", [".DownLoader", ".down\ufe0floader", "\ufe0f.downloader"])
def test_a_job_that_began_before_goes_on_with_its_names(name: str) -> None:
    """From other rules on, what a file system without case takes for `.downloader` is escaped."""
    url = f"http://h/{name}/x/{name}"
    assert escape(name, 5) == name
    assert list_path(f"{name}/x", 5) == literal_path(f"{name}/x", naming=5) == f"{name}/x"
    assert url_name(url, b"", 5) == name
    assert url_path(url, None, naming=5) == f"h/{name}/x/{name}"
    assert url_path(url, None) == f"h/{escape(name)}/x/{escape(name)}"
    with pytest.raises(BadName):
        literal_path(f"{name}/x")
