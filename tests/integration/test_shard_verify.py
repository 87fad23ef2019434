"""``verify`` compares everything that was published of shards, every bit of every file."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event

import msgspec
import pytest
from harness import Job, slow_but
from servers import Request, Server, Step, Until, ok, status

from downloader.files.directory import open_home
from downloader.storage.journal import Journal
from downloader.storage.verify import Verified, verify

Run = Callable[..., "subprocess.CompletedProcess[str]"]
FLIPS = 12  # in each file
FORMS: dict[str, tuple[str, ...]] = {
    "tar": ("--store", "tar", "--member", "txt=caption", "--keep-columns", "caption"),
    "tar-crc32": ("--store", "tar", "--member", "txt=caption", "--digests", "crc32", "--key", "name"),
    "parquet": ("--store", "parquet", "--keep-columns", "caption,wide"),
    "tar-gz-crc32": ("--store", "tar", "--shard-compression", "gz", "--digests", "crc32"),
    "tar-cut-crc32": ("--store", "tar", "--shard-size", "4k", "--digests", "crc32"),
    "tar-reproducible": ("--store", "tar", "--reproducible", "--key", "name", "--member", "txt=caption"),
}


def answer(request: Request) -> Sequence[Step]:
    """Two items of one key, ``same.txt`` and ``same.dat``, have equal bytes."""
    if "gone" in request.target:
        return status(404)
    name = request.target.rpartition("/")[2].partition(".")[0]
    return ok(name.encode() * 40, "Content-Type: application/x-thing", 'ETag: "e"')


def write_list(directory: Path, server: Server) -> Path:
    names = ["a1.dat", "same.txt", "same.dat", "b2.dat", "gone.dat", "c3.dat", "d4.dat", "e5.dat"]
    path = directory / "list.csv"
    rows = [f"{server.url}/f/{name},text of {name},{number}.5" for number, name in enumerate(names)]
    path.write_text("\n".join(["url,caption,wide", *rows]) + "\n")
    return path


class Copies:
    """A finished job, and copies of it to damage."""

    def __init__(self, origin: Path, directory: Path) -> None:
        self.origin = origin
        self._at = directory / "copy"

    def files(self) -> list[str]:
        return sorted(path.name for path in self.origin.iterdir() if path.is_file())

    def damaged(self, damage: Callable[[Path], object]) -> Verified:
        """Return what ``verify`` finds in a copy with this damage."""
        shutil.rmtree(self._at, ignore_errors=True)
        shutil.copytree(self.origin, self._at)
        damage(self._at)
        return verify(str(self._at), quiet=True)


@pytest.fixture(params=slow_but([("tar",), ("tar-crc32",), ("parquet",)], FORMS))
def copies(request: pytest.FixtureRequest, run_downloader: Run, tmp_path: Path) -> Copies:
    with Server(default=answer) as server:
        source = write_list(tmp_path, server)
        argv = (source, "-o", tmp_path / "dest", "--shard-files", 5, *FORMS[request.param])
        assert run_downloader(*argv).returncode == 1
    return Copies(tmp_path / "dest", tmp_path)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def is_found(found: Verified) -> bool:
    return bool(found.damaged_count or found.published) and found.exit_code == 1


def test_every_damage_is_found(copies: Copies) -> None:
    """A flipped bit anywhere, a file that is removed, cut, longer, or another one's."""
    assert copies.damaged(lambda dest: None).exit_code == 0
    names = copies.files()
    assert {"shards.json", "sizes.json", "00000_stats.json", "00001_stats.json"} < set(names)
    draw = random.Random(35)
    missed = []

    def check(what: str, damage: Callable[[Path], object]) -> None:
        if not is_found(copies.damaged(damage)):
            missed.append(what)

    for name in names:
        bits = (copies.origin / name).stat().st_size * 8
        for bit in {0, bits - 1, *(draw.randrange(bits) for _ in range(FLIPS))}:
            check(f"bit {bit} of {name}", lambda dest, at=name, bit=bit: flip(dest / at, bit))  # type: ignore[misc]
        content = (copies.origin / name).read_bytes()
        for what, other in (
            ("cut", content[:-1]),
            ("longer", content + b"\0"),
            ("empty", b""),
            ("a block more", content + bytes(512)),
        ):
            check(f"{what}: {name}", lambda dest, at=name, other=other: (dest / at).write_bytes(other))  # type: ignore[misc]
        check(f"removed: {name}", lambda dest, at=name: (dest / at).unlink())  # type: ignore[misc]
    for one in names:
        for other in (name for name in names if name > one):

            def swap(dest: Path, one: str = one, other: str = other) -> None:
                (dest / one).rename(dest / "x")
                (dest / other).rename(dest / one)
                (dest / "x").rename(dest / other)

            check(f"swapped: {one}, {other}", swap)
    assert missed == []


def blocks_of(path: Path, key: str) -> tuple[int, int]:
    """Return where the sample ``key`` is in an uncompressed tar."""
    import tarfile

    with tarfile.open(path) as shard:
        members = [each for each in shard if each.name.partition(".")[0] == key]
    last = members[-1]
    return members[0].offset, last.offset_data + -(-last.size // 512) * 512


@pytest.mark.parametrize("digests", ["crc32", "sha256"])
def test_sample_that_is_removed_is_missed(digests: str, run_downloader: Run, tmp_path: Path) -> None:
    """Also one of two with one key and equal bytes; and only its items are fetched again."""
    with Server(default=answer) as server:
        source = write_list(tmp_path, server)
        dest = tmp_path / "dest"
        argv = (source, "-o", dest, *FORMS["tar-crc32"][:-4], "--key", "name", "--digests", digests)
        assert run_downloader(*argv).returncode == 1
        shard = dest / "00000.tar"
        content = shard.read_bytes()
        start, stop = blocks_of(shard, "same%~2")
        shard.write_bytes(content[:start] + content[stop:])
        found = run_downloader("verify", dest)
        named = "damaged: 00000.tar: changed since it was published; the same command writes it again"
        remark = "with --existing keep or fail, move away first what the same command is to write again"
        assert found.stdout.splitlines()[-3:] == [named, "0 of 7 files agree with the journal", remark]
        assert "damaged: same.dat" in found.stdout.splitlines()
        # A text beside a content, and its metadata.
        for key, other in (("a1", b"text of a1"), ("b2", b'"e\\"')):
            start, stop = blocks_of(shard, key)
            damaged = bytearray(shard.read_bytes())
            damaged[damaged.index(other, start, stop)] ^= 1
            shard.write_bytes(damaged)
        found = run_downloader("verify", dest, "--json")
        # What was found before is said until it is fetched again.
        seen = json.loads(found.stdout)
        assert (found.returncode, seen["damaged_count"], list(seen["published"])) == (1, 7, ["00000.tar"])
        before = len(server.requests)
        assert run_downloader(*argv).returncode == 1
        assert len(server.requests) - before == 3 + 1, "those three, and the one that fails"
        found = run_downloader("verify", dest)
        assert (found.returncode, found.stdout) == (0, "7 of 7 files agree with the journal\n")


def test_files_beside_shards_are_named_and_can_be_had_again(run_downloader: Run, tmp_path: Path) -> None:
    with Server(default=answer) as server:
        source = write_list(tmp_path, server)
        dest = tmp_path / "dest"
        argv = (source, "-o", dest, "--shard-files", 5, *FORMS["tar"])
        assert run_downloader(*argv).returncode == 1
        for name in ("00000.parquet", "00001_stats.json", "shards.json"):
            flip(dest / name, 80)
        found = run_downloader("verify", dest)
        assert found.returncode == 1
        assert found.stdout.splitlines()[:4] == [
            "damaged: 00000.parquet: changed since it was published",
            "damaged: 00001_stats.json: changed since it was published; the same command writes it again",
            "damaged: shards.json: does not agree with the shards; the same command writes it again",
            "7 of 7 files agree with the journal",
        ]
        assert "move the shard away with the files beside it" in found.stdout
        for name in ("00000.parquet", "00001_stats.json", "shards.json"):
            flip(dest / name, 80)
        for name in ("00001_stats.json", "shards.json"):
            flip(dest / name, 80)
        found = run_downloader("verify", dest)
        assert (found.returncode, "move the shard away" in found.stdout) == (1, False)
        assert run_downloader(*argv).returncode == 1
        assert run_downloader("verify", dest).returncode == 0
        for shard in ("00000", "00001"):
            for path in dest.glob(f"{shard}*"):
                path.unlink()
        assert run_downloader("verify", dest).returncode == 1
        assert run_downloader(*argv).returncode == 1
        found = run_downloader("verify", dest)
        assert (found.returncode, found.stdout) == (0, "7 of 7 files agree with the journal\n")


def as_mine(path: Path) -> None:
    path.write_bytes(b'{"mine":1}')


@pytest.mark.parametrize("name", ["shards.json", "sizes.json"])
@pytest.mark.parametrize(
    "damage", [Path.unlink, as_mine, lambda path: flip(path, 80)], ids=["gone", "edited", "flipped"]
)
def test_indexes_are_named_until_they_are_written_again(
    damage: Callable[[Path], object], name: str, run_downloader: Run, tmp_path: Path
) -> None:
    """However often ``verify`` looks, whatever else it has named before or names then."""
    dest = tmp_path / "dest"
    with Server(default=answer) as server:
        source = write_list(tmp_path, server)
        argv = (source, "-o", dest, "--shard-files", 2, *FORMS["tar"])
        assert run_downloader(*argv).returncode == 1

        def named() -> list[str]:
            found = verify(str(dest), quiet=True)
            assert found.exit_code == bool(found.published)
            return sorted(found.published)

        damage(dest / name)
        assert [named() for _ in range(3)] == [[name]] * 3
        # Not done, although all is stored: the command that writes it goes on.
        now = run_downloader("status", dest, "--json")
        assert (now.returncode, json.loads(now.stdout)["complete"]) == (4, False)
        assert run_downloader(*argv).returncode == 1
        assert (named(), run_downloader("status", dest).returncode) == ([], 1)
        # Something else is named first.
        flip(dest / "00001_stats.json", 80)
        assert named() == ["00001_stats.json"]
        in_content(dest / "00002.tar")
        assert named() == ["00001_stats.json", "00002.tar"]
        assert named() == ["00001_stats.json", "00002.tar"]
        damage(dest / name)
        assert [named() for _ in range(2)] == [["00001_stats.json", "00002.tar", name]] * 2
        assert run_downloader(*argv).returncode == 1
        assert named() == []


@pytest.mark.parametrize("existing", ["keep", "fail"])
def test_index_that_a_run_could_not_write(existing: str, run_downloader: Run, tmp_path: Path) -> None:
    """A run that ends so is not complete, and ``verify`` does not find that all agrees."""
    dest = tmp_path / "dest"
    with Server(default=answer) as server:
        source = write_list(tmp_path, server)
        argv = (source, "-o", dest, "--shard-files", 2, *FORMS["tar"])
        assert run_downloader(*argv, "--limit", 3).returncode == 0
        as_mine(dest / "sizes.json")
        done = run_downloader(*argv, "--existing", existing, "--json")
        assert (done.returncode, json.loads(done.stdout)["complete"]) == (4, False)
        for _ in range(2):
            found = verify(str(dest), quiet=True)
            assert (found.exit_code, "sizes.json" in found.published, found.damaged) == (1, True, [])
            assert run_downloader("status", dest).returncode == 4
        assert (dest / "sizes.json").read_bytes() == b'{"mine":1}'
        assert run_downloader(*argv).returncode == 1
        assert verify(str(dest), quiet=True).exit_code == 0


@pytest.mark.parametrize("what", ["file", "directory"])
@pytest.mark.parametrize("name", ["shards.json", "sizes.json"])
def test_complete_job_whose_index_gives_way_to_one_of_the_user(
    name: str, what: str, run_downloader: Run, tmp_path: Path
) -> None:
    """A run must write it, and may not: ``status`` says so at once, not after a ``verify``."""
    dest = tmp_path / "dest"
    with Server(files={f"{n}.dat": ok(b"%d" % n) for n in range(5)}) as server:
        argv = (server.url, "-o", dest, "--shard-files", 2, "--store", "tar", "--json")
        assert run_downloader(*argv).returncode == 0
        assert run_downloader("status", dest).returncode == 0
        (dest / name).rename(tmp_path / name)
        if what == "file":
            as_mine(dest / name)
        else:
            (dest / name).mkdir()
        for existing in ("keep", "fail"):
            done = run_downloader(*argv, "--existing", existing)
            assert (done.returncode, json.loads(done.stdout)["complete"]) == (4, False), done
            assert run_downloader("status", dest).returncode == 4
        found = run_downloader("verify", dest)
        assert (found.returncode, "with --existing keep or fail, move away first" in found.stdout) == (
            1,
            True,
        )
        (dest / name).rename(tmp_path / "moved away")
        assert run_downloader(*argv, "--existing", "keep").returncode == 0
        assert run_downloader("status", dest).returncode == 0
        assert run_downloader("verify", dest).returncode == 0


def recorded_shards(dest: Path) -> int:
    """Return how many shards the journal of ``dest`` has as published."""
    with open_home(dest / ".downloader") as home, closing(Journal(home, read_only=True)) as journal:
        return len(list(journal.shards.finished()))


def test_indexes_that_a_killed_run_has_not_written(
    run_downloader: Run, start: Callable[..., Job], tmp_path: Path
) -> None:
    """They lack its shards, and say so; what was found wrong before the kill is still wrong."""
    dest, over = tmp_path / "dest", Event()

    def answers(request: Request) -> Sequence[Step]:
        return [Until(over), *ok(b"8")] if request.target == "/f/8.dat" else ok(request.target.encode())

    source = tmp_path / "list.txt"
    with Server(default=answers) as server:
        source.write_text("".join(f"{server.url}/f/{number}.dat\n" for number in range(9)))
        argv = (source, "-o", dest, "--store", "tar", "--shard-files", 3, "--workers", 1)
        assert run_downloader(*argv, "--limit", 3).returncode == 0
        (dest / "shards.json").unlink()
        assert verify(str(dest), quiet=True).exit_code == 1
        job = start(*argv, "--pipeline", "off")
        job.until(lambda: recorded_shards(dest) == 2)
        job.kill(signal.SIGKILL)
        job.wait()
        over.set()
        found = run_downloader("verify", dest)
        said = "shards.json and sizes.json were not compared: a run writes them at its end"
        assert (found.returncode, said in found.stdout) == (0, True), found.stdout + found.stderr
        assert run_downloader(*argv).returncode == 0
        found = run_downloader("verify", dest)
        assert (found.returncode, found.stdout) == (0, "9 of 9 files agree with the journal\n")


def header_of(path: Path) -> int:
    """Return a bit of the header of the last sample's content in the first half of an uncompressed tar."""
    import tarfile

    with tarfile.open(path) as shard:
        return shard.getmembers()[-2].offset * 8 + 24


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + path.read_bytes()[:1024])


def in_content(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[min(512, len(content) // 2)] ^= 1
    path.write_bytes(content)


def in_metadata(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"etag":"\\"e', b'"etag":"\\"f', 1))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "header": lambda path: flip(path, header_of(path) if path.suffix == ".tar" else 8 * 100),
    "content": in_content,
    "metadata": lambda path: in_metadata(path) if path.suffix == ".tar" else flip(path, 8 * 130),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3]),
    "grown": grow,
}


def samples_of(path: Path) -> list[str]:
    """Return the names of the items in a shard, as readers of others see them."""
    import tarfile

    import pyarrow.parquet as pq

    if path.suffix == ".parquet":
        rows = pq.read_table(path)
        return [row["name"] for row in rows.to_pylist() if row["bytes"]]
    subprocess.run(["tar", "-tf", path], check=True, capture_output=True, timeout=30)
    with tarfile.open(path) as shard:
        texts = [shard.extractfile(each) for each in shard if each.name.endswith(".json")]
        return [json.load(text)["name"] for text in texts if text is not None]


@pytest.mark.parametrize(
    "form", slow_but([("tar",)], ["tar", "tar-gz-crc32", "tar-reproducible", "parquet"])
)
def test_a_damaged_shard_is_named_until_it_is_published_anew(
    form: str, run_downloader: Run, tmp_path: Path
) -> None:
    """By the same command, with what is whole in it; readers have each sample once, and everything."""
    refused = set()

    def answers(request: Request) -> Sequence[Step]:
        at = request.target.rpartition("/")[2]
        return status(404) if at in refused else ok(at.encode() * 90, 'ETag: "e"')

    dest, manifest = tmp_path / "dest", tmp_path / "m.jsonl"
    names = [f"{number}.dat" for number in range(3 * len(DAMAGES))]
    suffix = {"tar-gz-crc32": "tar.gz", "parquet": "parquet"}.get(form, "tar")
    shards = [f"{number:05d}.{suffix}" for number in range(len(DAMAGES))]
    options = [each for each in FORMS[form] if "caption" not in each]
    options = [each for each in options if each not in {"--member", "--keep-columns"}]
    with Server(default=answers) as server:
        source = tmp_path / "list.txt"
        source.write_text("".join(f"{server.url}/f/{name}\n" for name in names))
        argv = (source, "-o", dest, "--shard-files", 3, *options)
        assert run_downloader(*argv).returncode == 0

        def named() -> list[str]:
            found = verify(str(dest), quiet=True)
            assert found.exit_code == bool(found.published)
            return sorted(found.published)

        lost = samples_of(dest / shards[0])[-1]
        for name, damage in zip(shards, DAMAGES.values(), strict=True):
            damage(dest / name)
        assert named() == named() == shards
        # One is removed, which is a way, too; of another, one sample cannot be had any more.
        (dest / shards[-1]).unlink()
        refused.add(lost)
        before = len(server.requests)
        done = run_downloader(*argv, "--manifest", manifest)
        assert done.returncode == 1, done.stderr
        assert "verify has found: to be published anew" in done.stderr
        asked = len(server.requests) - before
        assert asked < len(names) or suffix != "tar", "what is whole is taken from the damaged shard"
        refused.clear()
        assert run_downloader(*argv, "--manifest", manifest).returncode == 0
    assert named() == []
    index = json.loads((dest / "shards.json").read_bytes())["shardlist"]
    assert [shard["url"] for shard in index] == sorted(path.name for path in dest.glob(f"*[0-9].{suffix}"))
    listed = {shard["url"]: samples_of(dest / shard["url"]) for shard in index}
    assert sorted(name for each in listed.values() for name in each) == sorted(names)
    assert {shard["url"]: shard["nsamples"] for shard in index} == {
        url: len(each) for url, each in listed.items()
    }
    rows = [json.loads(line) for line in manifest.read_text().splitlines()]
    assert {row["name"]: f"{row['shard']}.{suffix}" for row in rows} == {
        name: url for url, each in listed.items() for name in each
    }


def test_a_shard_that_is_published_anew_in_fewer_files(run_downloader: Run, tmp_path: Path) -> None:
    """What it does not have any more is removed, if it is as it was published."""
    gone: set[str] = set()

    def answers(request: Request) -> Sequence[Step]:
        return status(404) if request.target in gone else ok(request.target.encode() * 500)

    dest, source = tmp_path / "dest", tmp_path / "list.txt"
    with Server(default=answers) as server:
        source.write_text("".join(f"{server.url}/f/{name}.dat\n" for name in "abc"))
        argv = (source, "-o", dest, "--store", "tar", "--shard-size", "3k")
        assert run_downloader(*argv).returncode == 0
        assert len(list(dest.glob("00000*.tar"))) == 3
        in_content(dest / "00000.tar")
        assert list(verify(str(dest), quiet=True).published) == ["00000.tar"]
        gone.add("/f/a.dat")
        assert run_downloader(*argv).returncode == 1
    assert sorted(path.name for path in dest.glob("*.tar")) == ["00000-1.tar", "00000.tar"]
    assert sorted(json.loads((dest / "sizes.json").read_bytes())) == ["00000-1.tar", "00000.tar"]
    assert sorted([*samples_of(dest / "00000.tar"), *samples_of(dest / "00000-1.tar")]) == [
        "b.dat",
        "c.dat",
    ]
    assert verify(str(dest), quiet=True).exit_code == 0


@pytest.mark.parametrize("signals", [1, 2])
def test_report_of_an_interrupted_repair_counts_each_item_once(
    signals: int, run_downloader: Run, start: Callable[..., Job], tmp_path: Path
) -> None:
    """Of a shard that is published anew, and of items that had failed: they count when it is published."""
    over, held = Event(), Event()
    refused = {"/f/7.dat"}

    def said(job: Job) -> bool:
        return "SIGINT" in job.err

    def answers(request: Request) -> Sequence[Step]:
        if request.target in refused:
            return status(404)
        if held.is_set() and request.target == "/f/5.dat":
            return [Until(over), *ok(b"5")]
        return ok(request.target.encode())

    dest, source = tmp_path / "dest", tmp_path / "list.txt"
    with Server(default=answers) as server:
        source.write_text("".join(f"{server.url}/f/{number}.dat\n" for number in range(9)))
        argv = (source, "-o", dest, "--store", "tar", "--shard-files", 3, "--workers", 1, "--json")
        assert run_downloader(*argv).returncode == 1
        (dest / "00001.tar").unlink()
        assert verify(str(dest), quiet=True).exit_code == 1
        held.set()
        for _ in range(2):
            server.requests.clear()
            job = start(*argv, "--pipeline", "off")
            job.until(lambda: any("/f/5.dat" in each.target for each in list(server.requests)))
            job.kill(signal.SIGINT)
            job.until(partial(said, job))
            if signals == 2:
                job.kill(signal.SIGINT)
            assert job.wait() == 130, job.err
            report, now = json.loads(job.out), json.loads(run_downloader("status", dest, "--json").stdout)
            assert (report["stored"], report["skipped"], report["failed"]) == (0, 5, 4)
            assert (now["stored"], now["failed"], now["listed"]) == (5, 4, 9)
        over.set()
        refused.clear()
        report = json.loads(run_downloader(*argv).stdout)
        assert (report["stored"], report["skipped"], report["failed"]) == (4, 5, 0)


@pytest.mark.parametrize("cut", [("00000_stats.json",), ("00000_stats.json", "00000.tar", "00000.parquet")])
def test_shard_of_which_nothing_says_what_was_published(
    cut: tuple[str, ...], run_downloader: Run, tmp_path: Path
) -> None:
    """As after a power cut without --fsync: the run says what to do, and that mends it."""
    dest = tmp_path / "dest"
    with Server(default=answer) as server:
        source = write_list(tmp_path, server)
        source.write_text("".join(source.read_text().splitlines(keepends=True)[:4]))
        argv = (source, "-o", dest, "--shard-files", 2, "--store", "tar")
        assert run_downloader(*argv).returncode == 0
        for name in (*cut, ".downloader/published/00000"):
            (dest / name).write_bytes(b"")
        (dest / ".downloader" / "indexed").unlink()
        said = run_downloader(*argv)
        assert (said.returncode, "00000_stats.json is not what was published" in said.stderr) == (4, True)
        found = verify(str(dest), quiet=True)
        assert (found.exit_code, found.agree) == (1, 1)
        assert run_downloader(*argv).returncode == 0
    assert verify(str(dest), quiet=True).exit_code == 0
    assert len(samples_of(dest / "00000.tar")) == 2


@pytest.mark.parametrize("what", ["empty", "cut", "longer", "a bit", "another's", "removed"])
def test_record_that_is_damaged_is_not_taken_for_none(
    what: str, run_downloader: Run, tmp_path: Path
) -> None:
    """Nothing says what the rows were: ``verify`` names it, a run does, and there are two ways on."""
    dest = tmp_path / "dest"
    records = dest / ".downloader" / "published"
    with Server(default=answer) as server:
        source = write_list(tmp_path, server)
        text = "".join(source.read_text().splitlines(keepends=True)[:4])
        source.write_text(text)
        argv = (source, "-o", dest, "--shard-files", 2, "--store", "tar")
        assert run_downloader(*argv).returncode == 0
        record = (records / "00000").read_bytes()
        made = {
            "empty": b"",
            "cut": record[:-1],
            "longer": record + b"\0",
            "a bit": record[:-9] + bytes([record[-9] ^ 1]) + record[-8:],
            "another's": (records / "00001").read_bytes(),
        }
        if what == "removed":
            (records / "00000").unlink()
            said = run_downloader("verify", dest)
            assert (said.returncode, "1 shards have no record" in said.stdout) == (0, True)
            assert "though they had one" in said.stdout
            return
        (records / "00000").write_bytes(made[what])
        shutil.copytree(dest, tmp_path / "copy")
        flip(dest / "00000.parquet", 99)  # the rows
        said = run_downloader("verify", dest)
        assert said.returncode == 1
        assert "damaged: .downloader/published/00000: damaged" in said.stdout
        assert "no record" not in said.stdout
        manifest = tmp_path / "m.jsonl"
        said = run_downloader(*argv, "--manifest", manifest)
        assert (said.returncode, "published/00000 is damaged" in said.stderr) == (4, True)
        assert not manifest.exists()
        source.write_text(text + text.splitlines(keepends=True)[3])
        said = run_downloader(*argv)
        assert (said.returncode, "published/00000 is damaged" in said.stderr) == (4, True)
        for name in ("00000.tar", "00000.parquet", "00000_stats.json"):
            (dest / name).unlink()
        assert run_downloader("verify", dest).returncode == 1
        assert run_downloader(*argv).returncode == 0
        found = verify(str(dest), quiet=True)
        assert (found.exit_code, found.unrecorded, found.checked) == (0, 0, 4)
        (tmp_path / "copy" / ".downloader" / "published" / "00000").unlink()
        assert verify(str(tmp_path / "copy"), quiet=True).exit_code == 0


@pytest.mark.parametrize("store", ["tar", "tar-cut-crc32", "parquet"])
@pytest.mark.parametrize("record", ["damaged", "removed"])
def test_indexes_lack_no_shard_that_is_there(
    record: str, store: str, run_downloader: Run, tmp_path: Path
) -> None:
    """Neither its record nor its stats say what it has."""
    dest = tmp_path / "dest"
    with Server(default=answer) as server:
        source = write_list(tmp_path, server)
        source.write_text("".join(source.read_text().splitlines(keepends=True)[:4]))
        argv = (source, "-o", dest, "--shard-files", 2, *FORMS[store])
        assert run_downloader(*argv).returncode == 0
        path = dest / ".downloader" / "published" / "00000"
        if record == "damaged":
            path.write_bytes(b"")
        else:
            path.unlink()
        (dest / "00000_stats.json").unlink()
        (dest / "shards.json").unlink()
        said = run_downloader(*argv)
        assert (said.returncode, "00000" in said.stderr) == (4, True)
        assert run_downloader("verify", dest).returncode == 1
        assert run_downloader(*argv).returncode == 0
    index = json.loads((dest / "shards.json").read_text())["shardlist"]
    assert {row["url"][:5] for row in index} == {"00000", "00001"}


def test_shards_of_an_earlier_version_are_verified(run_downloader: Run, tmp_path: Path) -> None:
    """It has kept no records: what the stats say is compared, and what cannot be is told."""
    with Server(default=answer) as server:
        source = write_list(tmp_path, server)
        argv = (source, "-o", tmp_path / "dest", "--shard-files", 5, *FORMS["tar"])
        assert run_downloader(*argv).returncode == 1
    shutil.rmtree(tmp_path / "dest" / ".downloader" / "published")
    with open_home(tmp_path / "dest" / ".downloader") as home, closing(Journal(home)) as journal:
        job = journal.job()
        assert job is not None
        journal.begin(msgspec.structs.replace(job, naming=5))
    copies = Copies(tmp_path / "dest", tmp_path)
    whole = copies.damaged(lambda dest: None)
    assert (whole.exit_code, whole.unrecorded) == (0, 2)
    size = (tmp_path / "dest" / "00000.tar").stat().st_size
    for bit in random.Random(1).choices(range(size * 8), k=FLIPS):
        assert is_found(copies.damaged(lambda dest, bit=bit: flip(dest / "00000.tar", bit)))  # type: ignore[misc]
    assert is_found(copies.damaged(lambda dest: flip(dest / "shards.json", 900)))
    said = run_downloader("verify", tmp_path / "dest")
    assert (said.returncode, "2 shards have no record" in said.stdout) == (0, True)
    assert "as those of earlier versions" in said.stdout
