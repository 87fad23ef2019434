"""--checksums off|list|all: what responses state is verified before a name appears, over both clients."""

from __future__ import annotations

import base64
import gzip
import hashlib
import zlib
from pathlib import Path

import pytest
from servers import Answer, Certificates, Nth, Server, download, ok, redirect
from servers.rows import head

LANES = pytest.mark.parametrize("lane", ["auto", "requests"])
BODY, LARGE, OTHER = b"hello", b"large " * 500_000, b"another"
QUICK = ("--workers", "1", "--retries", "5", "--backoff", "10ms")


def of(algorithm: str, body: bytes) -> str:
    if algorithm == "crc32":
        return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
    if algorithm == "crc32c":
        import crc32c

        return base64.b64encode(crc32c.crc32c(body).to_bytes(4, "big")).decode()
    return base64.b64encode(hashlib.new(algorithm, body).digest()).decode()


def fields(body: bytes) -> dict[str, str]:
    """Return a header field of each kind, by the name of a file."""
    return {
        "repr": f"Repr-Digest: sha-256=:{of('sha256', body)}:",
        "content": f"content-digest: sha-512=:{of('sha512', body)}:, md5=:{of('md5', body)}:",
        "instance": f"Digest: SHA-256={of('sha256', body)}",
        "md5": f"Content-MD5: {of('md5', body)}",
        "goog": f"x-goog-hash: crc32c={of('crc32c', body)}\r\nx-goog-hash: md5={of('md5', body)}",
        "goog-crc": f"X-Goog-Hash: crc32c={of('crc32c', body)}",
        "amz-sha256": f"x-amz-checksum-sha256: {of('sha256', body)}",
        "amz-sha1": f"x-amz-checksum-sha1: {of('sha1', body)}",
        "amz-crc32": f"x-amz-checksum-crc32: {of('crc32', body)}",
        "amz-crc32c": f"x-amz-checksum-crc32c: {of('crc32c', body)}",
    }


RIGHT: dict[str, Answer] = {name: ok(BODY, field) for name, field in fields(BODY).items()}
RIGHT |= {f"large-{name}": ok(LARGE, field) for name, field in fields(LARGE).items()}
RIGHT["chunked"] = [
    head(fields(BODY)["repr"], "Transfer-Encoding: chunked"),
    b"5\r\nhello\r\n0\r\n\r\n",
]
WRONG: dict[str, Answer] = {f"bad-{name}": ok(BODY, field) for name, field in fields(OTHER).items()}
WRONG |= {f"bad-large-{name}": ok(LARGE, field) for name, field in fields(OTHER).items()}


@LANES
@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("depth", ["off", "8"])
def test_what_differs_from_its_response_is_not_stored(
    lane: str, tls: bool, depth: str, tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path) if tls else None
    context = certificates.context() if certificates else None
    options = (*QUICK, "--lane", lane, "--pipeline", depth, "--checksums", "all", "--connections", "2")
    if certificates:
        options += ("--cacert", str(certificates.ca))
    with Server(files={**RIGHT, **WRONG}, tls=context) as server:
        result = download(server.url, tmp_path / "d", *options)
        requests = {name: len(server.seen(f"/get/{name}")) for name in WRONG}
    assert result.codes == dict.fromkeys(WRONG, "checksum-mismatch")
    assert set(result.files) == set(RIGHT)
    # Tried once more, whatever --retries says.
    assert {failure["attempts"] for failure in result.failures.values()} == {2}
    assert lane == "auto" or set(requests.values()) == {2}
    detail = result.failures["bad-repr"]["detail"]
    assert detail == (
        f"the body has {hashlib.sha256(BODY).hexdigest()}, "
        f"repr-digest says sha256:{hashlib.sha256(OTHER).hexdigest()}"
    )


@LANES
def test_bytes_damaged_once_are_right_the_second_time(lane: str, tmp_path: Path) -> None:
    field = fields(BODY)["repr"]
    files: dict[str, Answer] = {f"f{at}": Nth(ok(OTHER, field), ok(BODY, field)) for at in range(5)}
    with Server(files=files) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--lane", lane, "--checksums", "all")
    assert result.files == dict.fromkeys(files, BODY)
    assert result.report["attempts_by_error"] == {"checksum-mismatch": 5}


@LANES
@pytest.mark.parametrize("checksums", ["off", "list"])
def test_responses_are_not_asked_without_the_option(lane: str, checksums: str, tmp_path: Path) -> None:
    with Server(files=WRONG) as server:
        result = download(server.url, tmp_path / "d", *QUICK, "--lane", lane, "--checksums", checksums)
    assert set(result.files) == set(WRONG)


@LANES
@pytest.mark.parametrize(
    ("checksums", "codes"),
    [
        ("off", {}),
        ("list", {"a": "checksum-mismatch", "urls.csv: line 4": "bad-checksum"}),
        ("all", {"a": "checksum-mismatch", "c": "checksum-mismatch", "urls.csv: line 4": "bad-checksum"}),
    ],
)
def test_checksums_of_the_list(lane: str, checksums: str, codes: dict[str, str], tmp_path: Path) -> None:
    good = hashlib.md5(BODY).hexdigest()
    source = tmp_path / "urls.csv"
    with Server() as server:
        server.routes |= {
            "/a": ok(BODY),
            "/b": ok(BODY, fields(BODY)["repr"]),
            "/c": ok(BODY, fields(OTHER)["repr"]),
            "/d": ok(BODY),
        }
        sums = {"a": "0" * 32, "b": good, "d": "what", "c": good}
        rows = [f"{server.url}/{name},{digits}" for name, digits in sums.items()]
        source.write_text("\n".join(["url,md5", *rows, ""]))
        options = (*QUICK, "--lane", lane, "--checksums", checksums)
        result = download(str(source), tmp_path / "d", *options)
    found = {name.rpartition("/")[2]: code for name, code in result.codes.items()}
    assert {
        name if "line" not in name else f"urls.csv: {name}": code for name, code in found.items()
    } == codes
    assert set(result.files) == set("abcd") - {"d" if "line" in name else name for name in codes}


@pytest.mark.parametrize("compressed", [False, True])
def test_digests_of_the_coded_content(compressed: bool, tmp_path: Path) -> None:
    """They cover what is stored as it was sent, in a coding or not, and nothing that was decoded."""
    coded = gzip.compress(BODY)
    files: dict[str, Answer] = {
        f"{kind}-{name}": ok(coded, "Content-Encoding: gzip", field)
        for kind, body in (("coded", coded), ("decoded", BODY))
        for name, field in fields(body).items()
    }
    options = [*QUICK, "--checksums", "all"]
    with Server(files=files) as server:
        result = download(server.url, tmp_path / "d", *options, *["--compressed"] * compressed)
    if compressed:
        assert result.files == dict.fromkeys(files, BODY)
        return
    # Of x-goog-hash it is not known whether it is that of the coded object.
    kept = {name for name in files if name.startswith("coded-") or "goog" in name}
    assert result.files == dict.fromkeys(kept, coded)
    assert set(result.codes.values()) == {"checksum-mismatch"}


@LANES
def test_after_a_redirect_the_last_response_counts(lane: str, tmp_path: Path) -> None:
    with Server(files={"f": redirect("/there")}) as server:
        server.routes["/there"] = ok(BODY, fields(OTHER)["repr"])
        result = download(server.url, tmp_path / "d", *QUICK, "--lane", lane, "--checksums", "all")
    assert result.codes == {"f": "checksum-mismatch"}


def test_each_mirror_is_tried(tmp_path: Path) -> None:
    with Server() as server:
        bad = ok(OTHER, fields(BODY)["repr"])
        server.routes |= {"/1/f": bad, "/2/f": bad, "/3/f": ok(BODY, fields(BODY)["repr"])}
        source = tmp_path / "list.txt"
        source.write_text("\t".join(f"{server.url}/{at}/f" for at in (1, 2, 3)) + "\n")
        result = download(
            str(source), tmp_path / "d", *QUICK, "--list-format", "aria2", "--checksums", "all"
        )
    assert result.files == {"f": BODY}
