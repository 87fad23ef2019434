"""The session sends targets as they are written, and its templates are what urllib3 writes."""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from budget import bounded
from hypothesis import event, given
from hypothesis import strategies as st

from downloader.config.config import Config
from downloader.errors import FetchError
from downloader.http.session import HttpSession

LEGAL = "aZ09-._~!$&'()*+,;=:@[]%/?"
URL = st.builds(
    "{}://{}{}/{}{}".format,
    st.sampled_from(["http", "https", "HTTP"]),
    st.from_regex(r"[a-z0-9]{1,3}([.-]{1,2}[a-z0-9]{1,3}){0,2}\.?", fullmatch=True) | st.just("h.test"),
    st.sampled_from(["", ":", ":80", ":443", ":8080", ":080"]),
    st.text(alphabet=LEGAL, max_size=12),
    st.sampled_from(["", "#f", "#"]),
)


@bounded(examples=200)
@given(url=URL)
def test_target_is_sent_as_it_was_written(url: str) -> None:
    session = HttpSession(Config(source="http://h", output="d"))
    written = url[url.index("/", 8) :].partition("#")[0]
    path, mark, query = written.partition("?")
    dots = {".", ".."} & set(path.split("/"))
    event("dot segments" if dots else "as it is")
    sent = session.target(session.normal(url)).decode()
    if dots:
        assert (
            sent == urljoin("http://h/", path).removeprefix("http://h") + mark + query
            or "//" in path
            or path.endswith(";")
        )
    else:
        assert sent == written
    assert session.normal(session.normal(url)) == session.normal(url)


PLAIN: dict[str, Any] = {"source": "http://h", "output": "d"}
CONFIGS = {
    "plain": PLAIN,
    "auth": {**PLAIN, "auth": ("user", "pass")},
    "given host": {**PLAIN, "headers": (("X-One", "1"), ("Host", "given.test"))},
}


@pytest.mark.parametrize("config", list(CONFIGS.values()), ids=CONFIGS)
def test_template_of_each_origin_is_the_one_that_urllib3_writes(config: dict[str, Any]) -> None:
    session = HttpSession(Config(**config))
    urls = ["http://a.test/", "http://b.test:81/", "https://c.test/", "https://c.test:444/"]
    urls += ["http://d.test./", "http://[2001:db8::1]/", "http://[2001:db8::1]:81/", "http://192.0.2.1/"]
    urls += ["http://one:1@a.test/", "http://two:2@a.test/", "https://one:1@e.test/"]
    for url in urls + urls:
        origin = session.origin(url)
        assert session.template(origin) == session._record_template(origin), url
        login = urlsplit(url).netloc.rpartition("@")[0].encode()
        if login:
            assert b"Basic " + b64encode(login) in session.template(origin)[1]
        connection = session.new_connection(origin)
        assert (connection.host, connection.port) == (origin.host.rstrip("."), origin.port)
    assert len(session._templates) <= 8


def test_origin_is_the_same_for_all_spellings_of_one() -> None:
    session = HttpSession(Config(source="http://h", output="d"))
    first = session.origin("http://a.test/x")
    assert session.origin("http://a.test:80/y") is first
    assert session.origin("http://a.test?q=/") is first
    assert session.origin("HTTP://A.test/z") is first
    bare = session.origin("http://a.test/x", bare=True)
    assert bare is not first
    assert session.origin("http://a.test:80/y", bare=True) is bare
    other = session.origin("http://one:1@a.test/x")
    assert other is not first
    assert session.origin("http://one:1@a.test:80/x") is other
    assert session.origin("http://one:1@a.test/x", bare=True) is bare
    assert session.origin("http://u:p@a.test/") is not first
    assert session.origin("http://a.test/", bare=True) is not first
    assert session.origin("http://a.test") is first
    assert session.origin("http://a.tes/x").host == "a.tes"
    for wrong in ("http:///x", "ftp://a.test/", "http://[x/", "nothing"):
        with pytest.raises(FetchError):
            session.origin(wrong)
