"""Bags (RFC 8493): the checksums of their manifests, in every form in which these are written."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from encodings.aliases import aliases
from pathlib import Path
from unicodedata import normalize

import msgspec
import pytest
from harness import report_of, stored
from servers import Request, Server, Step, ok

from downloader.errors import ConfigError
from downloader.files.directory import open_home
from downloader.sources.lists.bag_manifests import BagManifests, fields_of, tag_files
from downloader.storage.journal import Journal

Run = Callable[..., "subprocess.CompletedProcess[str]"]
QUICK = ("--workers", 1, "--retries", 0, "--progress", "none", "--json")
E_ACUTE = "data/caf\u00e9.txt"


def body_of(path: str) -> bytes:
    return path.encode()


def answer(request: Request) -> Sequence[Step]:
    return ok(body_of(request.target))


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(default=answer) as made:
        yield made


def digest(target: str, algorithm: str = "sha256") -> str:
    return hashlib.new(algorithm, body_of(target)).hexdigest()


def make_bag(root: Path, fetch: str, manifests: dict[str, str | bytes], encoding: str = "UTF-8") -> Path:
    """Write a bag; return its fetch.txt."""
    root.mkdir()
    (root / "bagit.txt").write_text(f"BagIt-Version: 1.0\nTag-File-Character-Encoding: {encoding}\n")
    (root / "fetch.txt").write_bytes(fetch.encode(encoding))
    for name, text in manifests.items():
        (root / name).write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
    return root / "fetch.txt"


FORMS = [
    "{} data/{}",
    "{}   data/{}",
    "{}\tdata/{}",
    "{} \t data/{}",
    "{} *data/{}",
    "{}  ./data/{}",
    "{}  data/.//{}",
    "{}  data/{} \t",
]


@pytest.mark.parametrize(
    ("end", "name"),
    [("\n", "manifest-sha256.txt"), ("\r\n", "Manifest-sha256.txt"), ("\r", "MANIFEST-SHA-256.TXT")],
)
def test_wrong_bytes_are_found_however_the_manifest_is_written(
    server: Server, run_downloader: Run, tmp_path: Path, end: str, name: str
) -> None:
    fetch, manifest = "", "\ufeff"
    for number, form in enumerate(FORMS):
        right, wrong = f"good{number}", f"bad{number}"
        fetch += f"{server.url}/{right} - data/{right}{end}{server.url}/{wrong}\t- ./data/{wrong}{end}"
        manifest += form.format(digest(f"/{right}").upper(), right) + end
        manifest += form.format(digest("/other"), wrong) + end
    source = make_bag(tmp_path / "bag", fetch, {name: manifest})
    done = run_downloader(source, "-o", tmp_path / "d", *QUICK)
    assert report_of(done)["failed_by_error"] == {"checksum-mismatch": len(FORMS)}, done.stderr
    assert set(stored(tmp_path / "d")) == {f"data/good{number}" for number in range(len(FORMS))}
    unchecked = run_downloader(source, "-o", tmp_path / "d2", *QUICK, "--checksums", "off")
    assert report_of(unchecked)["stored"] == 2 * len(FORMS)


@pytest.mark.parametrize(
    ("in_fetch", "encoding"), [("NFC", "UTF-8"), ("NFD", "UTF-8"), ("NFC", "ISO-8859-1")]
)
def test_names_in_other_forms_and_encodings(
    server: Server, run_downloader: Run, tmp_path: Path, in_fetch: str, encoding: str
) -> None:
    other = "NFD" if in_fetch == "NFC" and encoding == "UTF-8" else "NFC"
    name = normalize(in_fetch, E_ACUTE)
    fetch = make_bag(
        tmp_path / "bag",
        f"{server.url}/1 - {name}\n{server.url}/2 - data/100%25%0A\n",
        {
            "manifest-sha512.txt": (
                f"{digest('/x', 'sha512')}  {normalize(other, E_ACUTE)}\n"
                f"{digest('/2', 'sha512')}  data/100%25%0a\n"
            ),
            "manifest-md5.txt": f"{digest('/1', 'md5')} {name}\n{digest('/2', 'md5')} data/100%25%0A\n",
        },
        encoding,
    )
    done = run_downloader(fetch, "-o", tmp_path / "d", *QUICK)
    assert report_of(done)["failed_by_error"] == {"checksum-mismatch": 1}, done.stderr
    assert list(stored(tmp_path / "d").values()) == [b"/2"]


GOOD = f"{digest('/a')} data/a\n"


@pytest.mark.parametrize(
    ("fetch", "manifests", "says"),
    [
        ("- data/a\n{}/b - data/b\n", {"sha256": GOOD}, "fetch.txt: line 2: data/b is not in manif"),
        ("- data/a\n", {"sha256": GOOD, "md5": f"{0:032} data/b\n"}, "data/a is not in manifest-md5.txt"),
        ("- data/a\n", {"sha256": GOOD, "sha3512": "00 data/b\n"}, "data/a is not in manifest-sha3512.txt"),
        ("- data/a\n", {"sha3256": "00 data/a\n"}, "the checksums in manifest-sha3256.txt cannot be"),
        ("- data/a\n", {"sha256": "data/a\n"}, "manifest-sha256.txt: line 1 does not begin with 64 hexa"),
        ("- data/a\n", {"sha256": GOOD + "12 data/a\n"}, "line 2 does not begin with 64 hexa"),
        ("- data/a\n", {"sha256": GOOD + f"{0:064} data/a\n"}, "data/a has another checksum before"),
        ("- data/a\n", {"sha256": GOOD + f"{0:064} data/../../b\n"}, "line 2 has no path below the bag"),
        ("- ../a\n", {"sha256": GOOD}, "fetch.txt: line 1: the path ../a leads out of the bag"),
        ("- data/A\n", {"sha256": GOOD}, "line 1: data/A is not in manifest-sha256.txt"),
        ("- data/a\n", {"sha256": ""}, "line 1: data/a is not in manifest-sha256.txt"),
    ],
)  # fmt: skip
def test_checksum_that_cannot_be_found_is_an_error_before_the_start(
    server: Server, run_downloader: Run, tmp_path: Path, fetch: str, manifests: dict[str, str], says: str
) -> None:
    files: dict[str, str | bytes] = {f"manifest-{name}.txt": text for name, text in manifests.items()}
    make_bag(tmp_path / "bag", f"{server.url}/a " + fetch.format(server.url), files)
    done = run_downloader(tmp_path / "bag", "-o", tmp_path / "d", *QUICK)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not server.requests


OLD = "BagIt-Version: 0.97\nTag-File-Character-Encoding: UTF-8\n"


def test_a_file_of_an_old_bag_is_in_one_of_its_manifests(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    """Before version 1.0 one is enough. bdbag writes so what it knows of remote files, and "%" as here."""
    paths = {"/1": "data/both", "/2": "data/md5", "/3": "data/sha", "/4": "data/100%.txt", "/5": "data/bad"}
    fetch = "".join(f"{server.url}{at} - {path}\n".replace("%", "%25") for at, path in paths.items())
    sums = {at: f"{digest(at)}  {path}\n" for at, path in paths.items() if at in "/1/3/4"}
    weak = {at: f"{digest(at, 'md5')}  {path}\n" for at, path in paths.items() if at in "/1/2"}
    weak["/5"] = f"{0:032}  data/bad\n"
    manifests = {"sha256": sums, "md5": weak}
    bag = make_bag(
        tmp_path / "bag",
        fetch,
        {f"manifest-{name}.txt": "".join(manifests[name].values()) for name in manifests},
    ).parent
    (bag / "bagit.txt").write_text(OLD)
    done = run_downloader(bag, "-o", tmp_path / "d", *QUICK)
    assert report_of(done)["failed_by_error"] == {"checksum-mismatch": 1}, done.stderr
    assert stored(tmp_path / "d") == {path: body_of(at) for at, path in paths.items() if at != "/5"}


@pytest.mark.parametrize(
    ("manifests", "says"),
    [
        ({"sha256": f"{digest('/b')} data/b\n", "md5": ""}, "data/a is in no manifest of the bag; add it"),
        (
            {"sha256": "", "sha3512": "00 data/a\n"},
            "data/a has only a checksum that cannot be computed, in manif",
        ),
    ],
)
def test_a_file_of_an_old_bag_without_a_checksum(
    server: Server, run_downloader: Run, tmp_path: Path, manifests: dict[str, str], says: str
) -> None:
    files: dict[str, str | bytes] = {f"manifest-{name}.txt": text for name, text in manifests.items()}
    bag = make_bag(tmp_path / "bag", f"{server.url}/a - data/a\n", files).parent
    (bag / "bagit.txt").write_text(OLD)
    done = run_downloader(bag, "-o", tmp_path / "d", *QUICK)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr


# Written in 0.97 and from 1.0 on; the target at the server says which file it is.
EXACT = {
    "data/100%.txt": ("data/100%.txt", "data/100%25.txt"),
    "data/100%25.txt": ("data/100%25.txt", "data/100%2525.txt"),
    "data/%~abc": ("data/%~abc", "data/%25~abc"),
    "data/nl\n\rx": ("data/nl%0A%0dx", "data/nl%0a%0Dx"),
    "data/back\\slash": ("data/back\\slash",) * 2,
    "data/tab\tx": ("data/tab\tx",) * 2,
    "data/esc\x1b[2J": ("data/esc\x1b[2J",) * 2,
    "data/x": ("data/x",) * 2,
    "data/x ": ("data/x ",) * 2,
    "data/.hidden/..x": ("data/.hidden/..x",) * 2,
    "data/token=abc": ("data/token=abc",) * 2,
}


@pytest.mark.parametrize("version", ["0.97", "1.0"])
def test_a_bag_is_completed_in_place_under_the_very_paths_that_it_states(
    server: Server, run_downloader: Run, tmp_path: Path, version: str
) -> None:
    written = {name: forms[version == "1.0"] for name, forms in EXACT.items()}
    fetch = "".join(f"{server.url}/{at} - {path}\n" for at, path in enumerate(written.values()))
    manifest = "".join(f"{digest(f'/{at}')}  {path}\n" for at, path in enumerate(written.values()))
    refused = ["data/.downloader/x", "data/" + "n" * 256, "bag-info.txt"]
    fetch += "".join(f"{server.url}/no - {path}\n" for path in refused)
    manifest += "".join(f"{digest('/no')}  {path}\n" for path in refused)
    bag = make_bag(tmp_path / "bag", fetch, {"manifest-sha256.txt": manifest}).parent
    tags = f"BagIt-Version: {version}\nTag-File-Character-Encoding: UTF-8\n"
    (bag / "bagit.txt").write_text(tags)
    before = {path.name for path in bag.iterdir()}
    done = run_downloader(bag, "-o", bag, *QUICK, "-v")
    assert report_of(done)["failed_by_error"] == {"bad-name": 3}, done.stderr
    assert "\x1b" not in done.stderr
    found = [path for path in (bag / "data").rglob("*") if path.is_file()]
    payload = {path.relative_to(bag).as_posix(): path.read_bytes() for path in found}
    assert payload == {name: body_of(f"/{at}") for at, name in enumerate(EXACT)}
    assert {path.name for path in bag.iterdir()} == before | {"data", ".downloader"}
    asked = len(server.requests)
    assert report_of(run_downloader(bag, "-o", bag, *QUICK))["failed"] == 3
    assert len(server.requests) == asked
    damaged = bag / "data" / "100%25.txt"
    damaged.write_bytes(b"other")
    told = subprocess.run(
        [sys.executable, "-m", "downloader", "verify", str(bag)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "damaged: data/100%25.txt" in told.stdout
    assert report_of(run_downloader(bag, "-o", bag, *QUICK))["stored"] == 1
    assert damaged.read_bytes() == body_of("/1")


def test_a_bag_of_the_version_before_goes_on_with_its_names(
    server: Server, run_downloader: Run, tmp_path: Path
) -> None:
    fetch = "".join(f"{server.url}/{at} - data/{at}%25\n" for at in range(3))
    bag, dest = make_bag(tmp_path / "bag", fetch, {}).parent, tmp_path / "d"
    assert run_downloader(bag, "-o", dest, *QUICK, "--limit", 1).returncode == 0
    journal = Journal(open_home(dest / ".downloader"))
    job = journal.job()
    assert job is not None
    journal.begin(msgspec.structs.replace(job, naming=2))
    journal.close()
    assert run_downloader(bag, "-o", dest, *QUICK).returncode == 0
    assert set(stored(dest)) == {"data/0%", "data/1%25", "data/2%25"}


@pytest.mark.parametrize("name", ["UTF-16", "UTF-7", "idna"])
def test_encoding_that_is_unsuitable(run_downloader: Run, tmp_path: Path, name: str) -> None:
    fetch = make_bag(tmp_path / "bag", "http://h/a - data/a\nhttp://h/b - data/b+//x\n", {})
    (tmp_path / "bag" / "bagit.txt").write_text(f"Tag-File-Character-Encoding: {name}\n")
    done = run_downloader(fetch, "-o", tmp_path / "d", *QUICK)
    assert done.returncode == 2, done.stderr
    assert f"tag files in {name} cannot be read; convert them to UTF-8" in done.stderr


REFUSED = """
base64_codec bz2_codec cp037 cp1026 cp1140 cp273 cp424 cp500 cp864 cp875 hex_codec hz idna
iso2022_jp iso2022_jp_1 iso2022_jp_2 iso2022_jp_2004 iso2022_jp_3 iso2022_jp_ext iso2022_kr mbcs oem
punycode quopri_codec raw_unicode_escape rot_13 shift_jis_2004 shift_jisx0213 undefined unicode_escape
utf_16 utf_16_be utf_16_le utf_32 utf_32_be utf_32_le utf_7 uu_codec zlib_codec
"""


@pytest.mark.parametrize("encoding", sorted({*aliases.values(), *REFUSED.split(), "charmap", "utf_8_sig"}))
def test_encoding_is_refused_or_reads_all_bytes(tmp_path: Path, encoding: str) -> None:
    """One that accepts most bags and cannot decode some line would lose all files of that bag."""
    fetch = make_bag(tmp_path / "bag", "", {})
    fetch.with_name("bagit.txt").write_text(f"Tag-File-Character-Encoding: {encoding}\n")
    if encoding in REFUSED.split():
        with pytest.raises(ConfigError, match=f"tag files in {encoding} cannot be read; convert them"):
            tag_files(str(fetch))
        return
    tags = tag_files(str(fetch))
    drawn = random.Random(encoding)
    # Each byte of ASCII, but those that end lines, behind each that may begin a character of several.
    ascii_bytes = sorted({*range(128)}.difference(b"\r\n"))
    odd = [bytes((lead, byte)) for lead in range(128, 256) for byte in ascii_bytes]
    odd += [
        b"+",
        b"b+//x",
        b"~",
        b"~{",
        b"\x1b",
        b"\x1b$B",
        b"\\",
        b"\\u12",
        b"%",
        b"xn--a",
        b"\x1b$)C\x0e",
    ]
    odd += [bytes(drawn.choices(b"\x81\x8e\x8f\xfe\xff09A~\\", k=6)) for _ in range(2000)]
    lines = [b"data/" + each + b"/x%d" % number for number, each in enumerate(odd)]
    sums = b"".join(b"%032x  %s\n" % (number, line) for number, line in enumerate(lines))
    fetch.with_name("manifest-md5.txt").write_bytes(sums)
    with closing(BagManifests(str(fetch), tags)) as manifests:
        for number, line in enumerate(lines):
            url, _, path = fields_of(b"http://h/a - " + line + b"\n", tags.encoding)
            assert url == "http://h/a"
            assert path.endswith(f"/x{number}")
            assert manifests.find(path)[1] == f"md5:{number:032x}"


@pytest.mark.parametrize("name", ["bagit.txt", "manifest-md5.txt", "manifest-sha256.txt"])
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
        (os.mkdir, "is not a regular file"),
        (lambda path: path.write_bytes(bytes(1 << 20)), "longer than 1 MiB"),
    ],
)
def test_file_of_a_bag_that_is_none(
    run_downloader: Run, tmp_path: Path, name: str, make: Callable[[Path], None], says: str
) -> None:
    """A bag may come from an archive, or lie in a directory that is not ours alone."""
    source = make_bag(tmp_path / "bag", "http://127.0.0.1:9/a - data/a\n", {})
    (tmp_path / "bag" / name).unlink(missing_ok=True)
    make(tmp_path / "bag" / name)
    done = run_downloader(source, "-o", tmp_path / "d", *QUICK, timeout=20)
    if name == "bagit.txt" and "longer" in says:
        assert done.returncode == 1  # as one that says nothing
    else:
        assert (done.returncode, says in done.stderr, name in done.stderr) == (2, True, True), done.stderr
