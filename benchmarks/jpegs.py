"""Serve JPEGs of 10 to 60 kB from one server, as a list of URLs names them, and read what was stored."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.job import Job
from benchmarks.origin import Origin, Outcome, free_ports, run_nginx
from benchmarks.running import ROOT, environment
from downloader.testserver.content import name_of

__all__ = ["IMAGE_PYTHON", "Jpegs", "encode", "jpeg_server", "named_in_shards", "stored_in_shards"]

IMAGE_PYTHON: Final = ROOT / ".venv-img2dataset" / "bin" / "python"
"""The interpreter that encodes the images: that of img2dataset, which has OpenCV."""

_COUNT: Final = 51
_CONFIG: Final = """
{user}
worker_processes 1;
daemon off;
pid {room}/nginx.pid;
error_log {room}/error.log warn;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000;
    client_body_temp_path {room}/body;
    proxy_temp_path {room}/proxy;
    fastcgi_temp_path {room}/fastcgi;
    uwsgi_temp_path {room}/uwsgi;
    scgi_temp_path {room}/scgi;
    server {{
        listen 127.0.0.1:{port};
        location ~ ^/jpeg/(?<which>[0-9]+)/ {{
            root {room};
            types {{ }}
            default_type image/jpeg;
            try_files /jpeg/$which.jpg =404;
        }}
    }}
}}
"""
# Images of 640 x 480, rougher and thereby larger one by one: sizes 10 kB, 11 kB, … 60 kB, or a little more.
_ENCODE: Final = """
import sys, cv2, numpy
chance = numpy.random.default_rng(1)
lines = 4
for number in range(int(sys.argv[2])):
    while True:
        rough = chance.integers(0, 256, (lines * 3, lines * 4, 3), dtype=numpy.uint8)
        image = cv2.resize(rough, (640, 480), interpolation=cv2.INTER_CUBIC)
        encoded = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 75])[1].tobytes()
        if len(encoded) >= 10_000 + 1_000 * number:
            break
        lines += 1
    open(f"{sys.argv[1]}/{number}.jpg", "wb").write(encoded)
"""


@dataclass(frozen=True)
class Jpegs(Origin):
    """A server of images: file N is image N modulo their number."""

    images: tuple[bytes, ...] = ()

    def urls(self, files: int) -> Iterator[str]:
        """Yield the URLs of the first ``files`` files."""
        count = len(self.images)
        return (f"{self.url}/jpeg/{index % count}/{name_of(index)}.jpg" for index in range(files))

    def outcome(
        self, files: int, directory: Path, stored: Iterable[tuple[str, bytes]] | None = None
    ) -> Outcome:
        """Compare the files that are ``stored`` with the images."""
        assert stored is not None
        left = {f"{name_of(index)}.jpg": self.images[index % len(self.images)] for index in range(files)}
        wrong = sum(left.pop(name, None) != content for name, content in stored)
        return Outcome(wrong + len(left))


def encode(directory: Path) -> list[bytes]:
    """Write the images to ``directory`` and return them."""
    directory.mkdir()
    argv = [str(IMAGE_PYTHON), "-c", _ENCODE, str(directory), str(_COUNT)]
    subprocess.run(argv, check=True, env=environment())
    return [(directory / f"{number}.jpg").read_bytes() for number in range(_COUNT)]


@contextlib.contextmanager
def jpeg_server(room: Path, where: str) -> Iterator[Jpegs]:
    """Run nginx with the images, all its files in ``room``, on the cores ``where``."""
    images = tuple(encode(room / "jpeg"))
    (port,) = free_ports(1)
    user = "user root;" if os.geteuid() == 0 else ""
    config = _CONFIG.format(user=user, room=room, port=port)
    with run_nginx(config, room, where, "127.0.0.1", port):
        yield Jpegs(f"http://127.0.0.1:{port}", None, lambda name: iter(()), images)


def stored_in_shards(job: Job) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the images in tar shards; keys are numbers of lines of the list."""
    names = [line.rpartition("/")[2] for line in job.urls.read_text().split()]
    assert job.destination is not None
    for path in job.destination.glob("*.tar"):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith(".jpg") and (content := archive.extractfile(member)) is not None:
                    yield names[int(Path(member.name).stem)], content.read()


def named_in_shards(job: Job) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every sample in tar shards; the name is that in its metadata."""
    assert job.destination is not None
    for path in job.destination.glob("*.tar"):
        content = b""
        with tarfile.open(path) as archive:
            for member in archive:
                file = archive.extractfile(member)
                assert file is not None
                if member.name.endswith(".json"):
                    yield json.loads(file.read())["name"], content
                else:
                    content = file.read()
