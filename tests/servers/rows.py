"""Responses of servers, one per row: what is sent, and the required result."""

from __future__ import annotations

from typing import NamedTuple

from servers.answers import (
    CLOSE,
    CUT,
    HANG,
    RESET,
    Answer,
    Forever,
    Nth,
    Pause,
    ok,
    redirect,
    status,
)


class Case(NamedTuple):
    """A row. ``ends``: the bytes that are stored, or the failure's code (or one of several). ``requests``:
    how many requests for the file itself the server must see."""

    answer: Answer
    ends: bytes | str
    requests: int
    verified: bool = True


def head(*lines: str) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode("latin-1")


CHUNKED = head("Transfer-Encoding: chunked")
OLD_AND_OPEN = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n"
OLD = b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n"
NO = b"HTTP/1.1 404 No\r\n"
FOUND = b"HTTP/1.1 302 Found\r\nLocation: /target\r\n"
HINTS_LAST = b"HTTP/1.1 103 Hints\r\nConnection: close\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n"
BODY = b"hello"
GOOD = head("Content-Length: 5") + BODY

CASES: dict[str, Case] = {
    "good": Case(ok(BODY), BODY, 1),
    "empty": Case(ok(b""), b"", 1),
    "large": Case(ok(b"x" * 3_000_000), b"x" * 3_000_000, 1),
    # A byte at intervals: requests' read timeout never fires.
    "drip-body": Case([head("Content-Length: 1000"), Forever(b"x", 0.1)], "timeout", 2),
    "drip-chunks": Case([CHUNKED, Forever(b"1\r\nx\r\n", 0.1)], "timeout", 2),
    "drip-headers": Case([b"HTTP/1.1 200 OK\r\n", Forever(b"X: y\r\n", 0.1)], "timeout", 2),
    "drip-one-header": Case([b"HTTP/1.1 200 OK\r\nX: ", Forever(b"y", 0.1)], "timeout", 2),
    "drip-continue": Case([Forever(b"HTTP/1.1 100 Continue\r\n\r\n", 0.1)], "timeout", 2),
    "drip-trailers": Case([CHUNKED, b"0\r\n", Forever(b"X: y\r\n", 0.1)], "timeout", 2),
    "flood-continue": Case([Forever(b"HTTP/1.1 100 Continue\r\n\r\n" * 50)], "protocol", 2),
    # Whole reads of them: none ends within a response.
    "flood-continue-slowly": Case([Forever(b"HTTP/1.1 100 Continue\r\n\r\n" * 600, 0.05)], "protocol", 2),
    # Empty lines before a response, of which a few are skipped.
    "blank-lines": Case([b"\r\n\r\n", Pause(0.05), b"\r\n", *ok(BODY)], BODY, 1),
    "blank-lines-flood": Case([Forever(b"\r\n" * 1000)], "protocol", 2),
    "blank-lines-slowly": Case([Forever(b"\r\n", 0.05)], "protocol", 2),
    "line-feeds-slowly": Case([Forever(b"\n", 0.03)], "protocol", 2),
    "silent": Case([HANG], "read-timeout", 2),
    "silent-in-body": Case([head("Content-Length: 10"), b"abc", HANG], "read-timeout", 2),
    # Shorter than announced.
    "short": Case([head("Content-Length: 10"), b"abc", CLOSE], "truncated", 2),
    "short-large": Case([head("Content-Length: 900000"), b"x" * 300_000, CLOSE], "truncated", 2),
    "reset": Case([RESET], "reset", 2),
    "reset-in-body": Case([head("Content-Length: 10"), b"abc", Pause(0.1), RESET], "reset", 2),
    "closed": Case([CLOSE], "reset", 2),
    "cut-in-headers": Case([b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Le", CLOSE], "truncated", 2),
    "cut-after-status": Case([b"HTTP/1.1 200 OK\r\n", CLOSE], "truncated", 2),
    "recovers": Case(Nth([RESET], ok(BODY)), BODY, 2),
    # Chunks.
    "chunked": Case([CHUNKED, b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nX: y\r\n\r\n"], BODY, 1),
    "chunk-blanks": Case([CHUNKED, b"3 \r\nhel\r\n2\t \r\nlo\r\n0 \r\n\r\n"], BODY, 1),
    "chunk-blanks-extension": Case([CHUNKED, b"3 ; x\r\nhel\r\n2 \t;y = z \r\nlo\r\n0\r\n\r\n"], BODY, 1),
    "chunk-large-blanks": Case([CHUNKED, b"493e0\r\n" + b"x" * 300_000,
                                b"\r\n3 ;x = y\r\nabc\r\n0\r\n\r\n"], b"x" * 300_000 + b"abc", 1),
    "chunk-longer-than-size": Case([CHUNKED, b"5\r\nhelloXX0\r\n\r\n"], "protocol", 2),
    "chunk-trailers-cut": Case([CHUNKED, b"5\r\nhello\r\n0\r\n", CLOSE], "truncated", 2),
    "chunk-trailers-flood": Case([CHUNKED, b"0\r\n", Forever(b"X: y\r\n" * 5000)], "protocol", 2),
    "coding-twice": Case([head("Transfer-Encoding: chunked", "Transfer-Encoding: gzip"),
                          b"5\r\nhello\r\n0\r\n\r\n", CLOSE], "protocol", 2),
    "chunk-zeros": Case([CHUNKED, b"0" * 15 + b"5\r\nhello\r\n" + b"0" * 30 + b"\r\n\r\n"], BODY, 1),
    "chunk-zeros-flood": Case([CHUNKED, Forever(b"0" * 65536)], "protocol", 2),
    "chunk-extension-flood": Case([CHUNKED, b"5;", Forever(b"x" * 65536)], "protocol", 2),
    "404-bad-chunks": Case([b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", CLOSE],
                           "http-404", 1),
    "chunk-nonsense": Case([CHUNKED, b"zz\r\nhello\r\n0\r\n\r\n"], "protocol", 2),
    "chunk-negative": Case([CHUNKED, b"-5\r\n", Forever(b"x" * 65536)], "protocol", 2),
    "chunk-underscore": Case([CHUNKED, b"0_5\r\nhello\r\n0\r\n\r\n"], "protocol", 2),
    "chunk-prefixed": Case([CHUNKED, b"0x5\r\nhello\r\n0\r\n\r\n"], "protocol", 2),
    "chunk-empty-size": Case([CHUNKED, b"\r\nhello\r\n0\r\n\r\n"], "protocol", 2),
    "chunk-too-long": Case([CHUNKED, b"3\r\nhello\r\n0\r\n\r\n"], "protocol", 2),
    "chunk-endless-size": Case([CHUNKED, Forever(b"1" * 65536)], "protocol", 2),
    "chunk-immense": Case([CHUNKED, b"FFFFFFFFFFFFFFF\r\nabc", CLOSE], "truncated", 2),
    "chunks-stop": Case([CHUNKED, b"5\r\nhello\r\n", CLOSE], "truncated", 2),
    "chunks-stop-in-size": Case([CHUNKED, b"5\r\nhello\r\n1", CLOSE], "truncated", 2),
    "chunks-stop-in-chunk": Case([CHUNKED, b"9\r\nhello", CLOSE], "truncated", 2),
    "chunks-hang": Case([CHUNKED, b"5\r\nhello\r\n", HANG], "read-timeout", 2),
    # Lengths.
    "no-length": Case([head("Connection: close"), BODY, CLOSE], BODY, 1, verified=False),
    "no-length-http10": Case([b"HTTP/1.0 200 OK\r\n\r\nhello", CLOSE], BODY, 1, verified=False),
    "length-abc": Case([head("Content-Length: abc"), BODY, CLOSE], "protocol", 2),
    "length-negative": Case([head("Content-Length: -5"), BODY, CLOSE], "protocol", 2),
    "length-plus": Case([head("Content-Length: +5"), BODY, CLOSE], "protocol", 2),
    "length-underscore": Case([head("Content-Length: 0_5"), BODY, CLOSE], "protocol", 2),
    "length-empty": Case([head("Content-Length:"), BODY, CLOSE], "protocol", 2),
    "length-5000-digits": Case([head("Content-Length: " + "9" * 5000), BODY, CLOSE], "protocol", 2),
    "length-exabyte": Case([head("Content-Length: 999999999999999999"), BODY, CLOSE], "truncated", 2),
    "length-two": Case([head("Content-Length: 5", "Content-Length: 6"), BODY, CLOSE], "protocol", 2),
    "length-twice": Case([head("Content-Length: 5", "Content-Length: 5"), BODY], BODY, 1),
    # Equal ones in one field are one (RFC 9110 §8.6), on a connection that stays open, too.
    "length-list": Case([head("Content-Length: 5, 5"), BODY], BODY, 1),
    "length-list-large": Case([head("Content-Length: 300000,300000"), b"x" * 300_000], b"x" * 300_000, 1),
    "length-list-cut": Case([head("Content-Length: 20, 20"), BODY, CLOSE], "truncated", 2),
    "length-list-cut-large": Case([head("Content-Length: 900000, 900000"), b"x" * 300_000, CLOSE],
                                  "truncated", 2),
    "length-list-cut-http10": Case([b"HTTP/1.0 200 OK\r\nContent-Length: 20,20\r\n\r\n", BODY, CLOSE],
                                   "truncated", 2),
    "length-list-and-field": Case([head("Content-Length: 20, 20", "content-length: 20"), BODY, CLOSE],
                                  "truncated", 2),
    "length-list-differs": Case([head("Content-Length: 5, 6"), BODY, CLOSE], "protocol", 2),
    "length-list-open": Case([head("Content-Length: 5,"), BODY, CLOSE], "protocol", 2),
    "length-list-of-nothing": Case([head("Content-Length: ,"), BODY, CLOSE], "protocol", 2),
    "length-field-and-list": Case([head("Content-Length: 5", "Content-Length: 5, 6"), BODY, CLOSE],
                                  "protocol", 2),
    "length-field-and-nothing": Case([head("Content-Length: 5", "Content-Length:"), BODY, CLOSE],
                                     "protocol", 2),
    "length-twice-cut": Case([head("Content-Length: 20", "Content-Length: 20"), BODY, CLOSE],
                             "truncated", 2),
    "length-zeros": Case([head("Content-Length: 0005"), BODY], BODY, 1),
    "length-zeros-cut": Case([head("Content-Length: 020"), BODY, CLOSE], "truncated", 2),
    "length-zeros-many": Case([head("Content-Length: " + "0" * 30 + "5"), BODY], BODY, 1),
    "length-blank-within": Case([head("Content-Length: 5 5"), BODY, CLOSE], "protocol", 2),
    "length-quoted": Case([head('Content-Length: "5"'), BODY, CLOSE], "protocol", 2),
    "length-hexadecimal": Case([head("Content-Length: 0x5"), BODY, CLOSE], "protocol", 2),
    "length-decimal-point": Case([head("Content-Length: 5.0"), BODY, CLOSE], "protocol", 2),
    "length-superscript": Case([head("Content-Length: \xb2"), BODY, CLOSE], "protocol", 2),
    "length-blank-before-colon": Case([head("Content-Length : 20"), BODY, CLOSE], "protocol", 2),
    "length-http10": Case([OLD_AND_OPEN + b"Content-Length: 5\r\n\r\n", BODY], BODY, 1),
    "length-identity-cut": Case([head("Transfer-Encoding: identity", "Content-Length: 20"), BODY, CLOSE],
                                "truncated", 2),
    "length-list-and-chunked": Case([head("Transfer-Encoding: chunked", "Content-Length: 5, 6"),
                                     b"5\r\nhello\r\n0\r\n\r\n", CLOSE], BODY, 1),
    # The status says it all.
    "404-length-differs": Case([b"HTTP/1.1 404 No\r\nContent-Length: 2, 3\r\n\r\nno", CLOSE],
                               "http-404", 1),
    "404-coding-unknown": Case([b"HTTP/1.1 404 No\r\nTransfer-Encoding: x\r\n\r\nno", CLOSE],
                               "http-404", 1),
    "204-length-list": Case([b"HTTP/1.1 204 No\r\nContent-Length: 5, 5\r\n\r\n"], "unexpected-status", 1),
    "hop-length-list": Case([FOUND + b"Content-Length: 2, 2\r\n\r\nno"], BODY, 1),
    "hop-length-differs": Case([FOUND + b"Content-Length: 2, 3\r\n\r\nno"], BODY, 1),
    "length-and-chunked": Case([head("Transfer-Encoding: chunked", "Content-Length: 3"),
                                b"5\r\nhello\r\n0\r\n\r\n", CLOSE], BODY, 1),
    # Behind chunks in HTTP/1.0 the connection is closed (RFC 9112 §6.1): nothing there is a response.
    "chunked-http10": Case([OLD_AND_OPEN + b"Transfer-Encoding: chunked\r\n\r\n",
                            b"5\r\nhello\r\n0\r\n\r\n"], BODY, 1),
    "coding-unknown-cut": Case([head("Transfer-Encoding: gzip", "Content-Length: 5"), BODY, CLOSE],
                               "protocol", 2),
    "coding-unknown": Case([head("Transfer-Encoding: gzip, chunked"),
                            b"5\r\nhello\r\n0\r\n\r\n", CLOSE], "protocol", 2),
    # Statuses.
    "continue-first": Case([b"HTTP/1.1 100 Continue\r\n\r\n", *ok(BODY)], BODY, 1),
    "hints-first": Case([b"HTTP/1.1 103 Hints\r\nLink: </x>\r\n\r\n", Pause(0.1), *ok(BODY)], BODY, 1),
    # Interim responses are followed by the final one, whatever they say of the connection (RFC 9110 §15.2).
    "interim-http10": Case([b"HTTP/1.0 100 Continue\r\n\r\n", *ok(BODY)], BODY, 1),
    "interim-http10-both": Case([b"HTTP/1.0 100 Continue\r\n\r\n" + OLD + BODY, CLOSE], BODY, 1),
    "interim-http20": Case([b"HTTP/2.0 103 Hints\r\n\r\n", *ok(BODY)], BODY, 1),
    "interim-http30": Case([b"HTTP/3.0 103 Hints\r\n\r\n", *ok(BODY)], BODY, 1),
    "interim-close": Case([HINTS_LAST + GOOD], BODY, 1),
    "interim-close-later": Case([HINTS_LAST, Pause(0.05), *ok(BODY)], BODY, 1),
    "interim-close-both": Case([HINTS_LAST, *ok(BODY, "Connection: close"), CLOSE], BODY, 1),
    "interim-close-often": Case([HINTS_LAST * 3 + b"HTTP/1.0 102 Wait\r\n\r\n", *ok(BODY)], BODY, 1),
    "interim-close-large": Case([HINTS_LAST, *ok(b"x" * 300_000)], b"x" * 300_000, 1),
    "interim-close-chunked": Case([HINTS_LAST + CHUNKED + b"5\r\nhello\r\n0\r\n\r\n"], BODY, 1),
    "interim-close-hop": Case([HINTS_LAST, *redirect("/target")], BODY, 1),
    "interim-close-404": Case([HINTS_LAST, *status(404, body=b"no")], "http-404", 1),
    "interim-close-and-no-more": Case([HINTS_LAST, CLOSE], "reset truncated", 2),
    "interim-close-silent": Case([HINTS_LAST, HANG], "read-timeout", 2),
    "interim-close-nonsense": Case([HINTS_LAST, b"nonsense\r\n\r\n", HANG], "protocol", 2),
    "interim-close-blank-lines": Case([HINTS_LAST, Forever(b"\r\n" * 1000)], "protocol", 2),
    "interim-close-flood": Case([Forever(HINTS_LAST * 50)], "protocol", 2),
    "interim-close-drip": Case([Forever(HINTS_LAST, 0.1)], "timeout", 2),
    "interim-upgrade": Case([b"HTTP/1.1 103 Hints\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", *ok(BODY)],
                            BODY, 1),
    "interim-unknown": Case([b"HTTP/1.1 199 What\r\nConnection: close\r\n\r\n", *ok(BODY)], BODY, 1),
    # It ends with its head, whatever that says.
    "interim-length": Case([b"HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n", *ok(BODY)], BODY, 1),
    "interim-length-odd": Case([b"HTTP/1.1 103 Hints\r\nContent-Length: x\r\n\r\n", *ok(BODY)], BODY, 1),
    "interim-close-length": Case([b"HTTP/1.0 100 Continue\r\nContent-Length: 5\r\n\r\n" + GOOD], BODY, 1),
    "interim-unknown-length": Case([b"HTTP/1.1 104 What\r\nContent-Length: 5\r\n\r\n" + GOOD], BODY, 1),
    "interim-unknown-chunked": Case([b"HTTP/1.1 104 What\r\nTransfer-Encoding: chunked\r\n\r\n", *ok(BODY)],
                                    BODY, 1),
    "206": Case(status(206, "Content-Range: bytes 0-4/10", body=BODY), "unexpected-status", 1),
    "204": Case([b"HTTP/1.1 204 No Content\r\n\r\n"], "unexpected-status", 1),
    "304": Case([b"HTTP/1.1 304 Not Modified\r\n\r\n"], "unexpected-status", 1),
    "204-and-more": Case([b"HTTP/1.1 204 No\r\n\r\n", Pause(0.05), *ok(b"wrong")],
                         "unexpected-status", 1),
    "101": Case([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", HANG], "unexpected-status", 1),
    # What follows is another protocol, or may be.
    "101-upgrade": Case([SWITCHED, HANG], "unexpected-status", 1),
    "101-upgrade-and-close": Case([SWITCHED, CLOSE], "unexpected-status", 1),
    "101-upgrade-and-more": Case([SWITCHED + b"\x81\x05hello"], "unexpected-status", 1),
    "101-upgrade-and-file": Case([SWITCHED, *ok(b"wrong")], "unexpected-status", 1),
    "101-and-file": Case([b"HTTP/1.1 101 What\r\n\r\n" + GOOD], "unexpected-status", 1),
    "101-http10": Case([b"HTTP/1.0 101 What\r\n\r\n", *ok(b"wrong")], "unexpected-status", 1),
    "101-behind-interim": Case([HINTS_LAST + SWITCHED], "unexpected-status", 1),
    "200-offers-upgrade": Case(ok(BODY, "Upgrade: h2c", "Connection: upgrade"), BODY, 1),
    "426": Case(status(426, "Upgrade: h2c", "Connection: upgrade"), "http-426", 1),
    "404": Case(status(404, body=b"no"), "http-404", 1),
    "404-endless": Case([b"HTTP/1.1 404 No\r\n\r\n", Forever(b"x" * 65536)], "http-404", 1),
    "404-until-the-end": Case([b"HTTP/1.1 404 No\r\n\r\n", BODY, CLOSE], "http-404", 1),
    "404-cut": Case([b"HTTP/1.1 404 No\r\nContent-Length: 100\r\n\r\n", BODY, CLOSE], "http-404", 1),
    # Nothing of such a body is stored, so the status counts however the body ends.
    "404-cut-off": Case([NO + b"Connection: close\r\n\r\n", BODY, CUT], "http-404", 1),
    "404-cut-off-short": Case([NO + b"Content-Length: 100\r\n\r\n", BODY, CUT], "http-404", 1),
    "404-cut-off-chunks": Case([NO + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", CUT],
                               "http-404", 1),
    "404-reset": Case([NO + b"Connection: close\r\n\r\n", BODY, Pause(0.1), RESET], "http-404", 1),
    "404-reset-short": Case([NO + b"Content-Length: 100\r\n\r\n", Pause(0.1), RESET], "http-404", 1),
    "404-silent": Case([NO + b"Content-Length: 100\r\n\r\n", HANG], "http-404", 1),
    "404-slow": Case([NO + b"Content-Length: 1000\r\n\r\n", Forever(b"x", 0.1)], "http-404", 1),
    "404-chunk-extension-flood": Case([NO + b"Transfer-Encoding: chunked\r\n\r\n5;",
                                       Forever(b"x" * 65536)], "http-404", 1),
    "404-trailers-flood": Case([NO + b"Transfer-Encoding: chunked\r\n\r\n0\r\n",
                                Forever(b"X: y\r\n" * 5000)], "http-404", 1),
    "500-cut-off": Case([b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n", CUT], "http-500", 2),
    "206-cut-off": Case([b"HTTP/1.1 206 Some\r\nContent-Length: 9\r\n\r\nhello", CUT],
                        "unexpected-status", 1),
    # With Retry-After, a 403 is a rate limit: it is no failure for good.
    "403-wait-cut-off": Case(Nth([b"HTTP/1.1 403 No\r\nRetry-After: 0\r\nContent-Length: 9\r\n\r\n", CUT],
                                 ok(BODY)), BODY, 2),
    "403-wait-reset": Case(Nth([b"HTTP/1.1 403 No\r\nRetry-After: 0\r\n\r\nno", Pause(0.1), RESET],
                               ok(BODY)), BODY, 2),
    "410": Case(status(410), "http-410", 1),
    "401": Case(status(401, 'WWW-Authenticate: Basic realm="x"'), "http-401", 1),
    "403": Case(status(403), "http-403", 1),
    "500": Case(status(500), "http-500", 2),
    "999": Case(status(999), "http-999", 1),
    "not-http": Case([b"SSH-2.0-OpenSSH_9.6\r\n", HANG], "protocol", 2),
    "binary": Case([bytes(range(256)), CLOSE], "protocol", 2),
    # Headers.
    "header-of-70k": Case([head("X: " + "y" * 70_000, "Content-Length: 5"), BODY], "protocol", 2),
    "headers-of-120k": Case([head(*[f"X-{n}: " + "y" * 4000 for n in range(30)], "Content-Length: 5"),
                             BODY], "protocol", 2),
    "headers-300": Case([head(*[f"X-{n}: y" for n in range(300)], "Content-Length: 5"), BODY], BODY, 1),
    "headers-3000": Case([head(*[f"X-{n}: y" for n in range(3000)], "Content-Length: 5"), BODY], BODY, 1),
    "headers-300-chunked": Case([head(*[f"X-{n}: y" for n in range(300)], "Transfer-Encoding: chunked"),
                                 b"5\r\nhello\r\n0\r\n\r\n"], BODY, 1),
    # Blanks around values (RFC 9110 §5.5), a value on two lines (RFC 9112 §5.2).
    "blanks-length": Case([head("Content-Length:\t 5 \t"), BODY], BODY, 1),
    "blanks-coding": Case([head("Transfer-Encoding: chunked "), b"5\r\nhello\r\n0\r\n\r\n"], BODY, 1),
    "blanks-coding-tab": Case([head("Transfer-Encoding:chunked\t"), b"5\r\nhello\r\n0\r\n\r\n"], BODY, 1),
    "blanks-location": Case(status(302, "Location: \t/target \t"), BODY, 1),
    "folded": Case([head("X: a", "  b", " ", "Content-Length:", " 5"), BODY], BODY, 1),
    "folded-nothing": Case([head(" X: a", "Content-Length: 5"), BODY, CLOSE], "protocol", 2),
    # What stands behind a bare CR is no field of its own (RFC 9112 §2.2).
    "cr-in-header": Case([head("X: a\rContent-Length: 2", "Content-Length: 5"), BODY], BODY, 1),
    "header-without-colon": Case([head("nonsense", "Content-Length: 5"), BODY, CLOSE], "protocol", 2),
    "status-of-no-number": Case([b"HTTP/1.1 200.5 OK\r\nContent-Length: 5\r\n\r\n", BODY], "protocol", 2),
    "status-without-blank": Case([b"HTTP/1.1 200OK\r\nContent-Length: 5\r\n\r\n", BODY], "protocol", 2),
    "status-line-in-small": Case([b"http/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", BODY], "protocol", 2),
    "status-line-of-1M": Case([b"HTTP/1.1 200 " + b"x" * (1 << 20) + b"\r\n\r\n", CLOSE], "protocol", 2),
    "endless-status-line": Case([Forever(b"HTTP/1.1 200 " + b"x" * 65536)], "protocol", 2),
    # Redirects.
    "hop-1": Case(redirect("/target"), BODY, 1),
    "hop-relative": Case(redirect("../target"), BODY, 1),
    "hop-5": Case(redirect("/hop/4"), BODY, 1),
    "hop-6": Case(redirect("/hop/5"), "redirect-loop", 1),
    "hop-loop": Case(redirect("/get/hop-loop"), "redirect-loop", 6),
    "hop-twice-the-same": Case(status(302, "Location: /target", "Location: /target "), BODY, 1),
    "hop-two-places": Case(status(302, "Location: /target", "Location: /hop/1"), "redirect-refused", 1),
    "hop-file": Case(redirect("file:///etc/passwd"), "redirect-refused", 1),
    "hop-ftp": Case(redirect("ftp://127.0.0.1/x"), "redirect-refused", 1),
    "hop-nonsense": Case(redirect("http://[::1/x"), "redirect-refused", 1),
    "hop-no-host": Case(redirect("https://:443/x"), "redirect-refused", 1),
    "hop-without-location": Case(status(302), "unexpected-status", 1),
    "hop-endless-body": Case([b"HTTP/1.1 302 Found\r\nLocation: /target\r\n\r\n",
                              Forever(b"x" * 65536)], BODY, 1),
    "hop-endless-chunks": Case([b"HTTP/1.1 302 Found\r\nLocation: /target\r\n"
                                b"Transfer-Encoding: chunked\r\n\r\n",
                                Forever(b"5\r\nxxxxx\r\n", 0.05)], BODY, 1),
    "hop-cut-off": Case([FOUND + b"Content-Length: 100\r\n\r\n", BODY, CUT], BODY, 1),
    "hop-short": Case([FOUND + b"Content-Length: 100\r\n\r\n", BODY, CLOSE], BODY, 1),
    "hop-reset": Case([FOUND + b"Content-Length: 100\r\n\r\n", BODY, Pause(0.1), RESET], BODY, 1),
    "hop-silent": Case([FOUND + b"Content-Length: 100\r\n\r\n", HANG], BODY, 1),
    "hop-to-404": Case(redirect("/nothing"), "http-404", 1),
}  # fmt: skip

AT_ONCE = frozenset(
    [
        "interim-http10",
        "interim-http10-both",
        "interim-http20",
        "interim-close",
        "interim-close-later",
        "interim-close-both",
        "interim-close-often",
        "interim-close-large",
        "interim-close-chunked",
        "interim-close-404",
        "interim-upgrade",
        "interim-unknown",
        "interim-length",
        "200-offers-upgrade",
        "426",
    ]
)
"""Rows that the pipelined client settles with one request, although llhttp has to be told how."""

HOPS: dict[str, Answer] = {
    "/target": ok(BODY),
    **{f"/hop/{n}": redirect(f"/hop/{n - 1}" if n > 1 else "/target") for n in range(1, 6)},
}
