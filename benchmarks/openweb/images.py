"""Run img2dataset, and read what it stored.

It is installed apart, with an interpreter of its own: its dependencies are large, and not all of them
follow the newest Python. That installation encodes the JPEGs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from benchmarks.job import Job
from benchmarks.jpegs import IMAGE_PYTHON, stored_in_shards

__all__ = ["IMG2DATASET", "img2dataset", "stored"]

IMG2DATASET: Final = IMAGE_PYTHON.with_name("img2dataset")
_SHARD: Final = 10_000  # files in a directory or tar; the key of a file is its place in the list


def img2dataset(form: str) -> Callable[[Job], list[str]]:
    """Return its command line: 256 threads and 10 s, its defaults; no part of the work that ours does not
    do (decoding, hashes, EXIF)."""

    def argv(job: Job) -> list[str]:
        trust = [f"SSL_CERT_FILE={job.cafile}"] if job.cafile else []
        options = {
            "url_list": job.urls, "output_folder": job.destination, "output_format": form,
            "resize_mode": "no", "skip_reencode": True, "disable_all_reencoding": True,
            "compute_hash": None, "extract_exif": False, "processes_count": 1, "thread_count": 256,
            "timeout": 10, "number_sample_per_shard": _SHARD,
        }  # fmt: skip
        # Otherwise it asks the network for a newer version of a package when it starts.
        return [
            "env",
            *trust,
            "NO_ALBUMENTATIONS_UPDATE=1",
            str(IMG2DATASET),
            *(f"--{name}={value}" for name, value in options.items()),
        ]

    return argv


def stored(job: Job) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every image that img2dataset stored, in either form; the name is that of
    the URL in its place."""
    names = [line.rpartition("/")[2] for line in job.urls.read_text().split()]
    assert job.destination is not None
    for path in job.destination.glob("*/*.jpg"):
        yield names[int(path.stem)], path.read_bytes()
    yield from stored_in_shards(job)
