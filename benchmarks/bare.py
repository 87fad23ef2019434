"""Run the smallest program that does the job: a gevent pool around one requests session, and a write.

It is the baseline of this project's requests client: no journal, no limits, no retries, no checks. ``python
benchmarks/bare.py URL DEST FILES`` prints its files per second as JSON.
"""

from gevent import monkey

monkey.patch_all()

import json
import os
import sys
import time

import requests
from gevent.pool import Pool
from requests.adapters import HTTPAdapter

CONNECTIONS = 32


def main(url: str, destination: str, files: int) -> None:
    """Fetch the first ``files`` files of the server at ``url`` into ``destination``."""
    os.makedirs(destination, exist_ok=True)
    session = requests.Session()
    session.mount("http://", HTTPAdapter(pool_maxsize=CONNECTIONS))
    began = time.perf_counter()
    names: list[str] = []
    marker = None
    while len(names) < files:
        page = session.get(f"{url}/list", params={"next-marker": marker} if marker else None).json()
        names += page["FileNames"]
        marker = page.get("NextMarker")
        if not marker:
            break

    def fetch(name: str) -> None:
        response = session.get(f"{url}/get/{name}")
        response.raise_for_status()
        with open(os.path.join(destination, name), "wb") as file:
            file.write(response.content)

    pool = Pool(CONNECTIONS)
    for name in names[:files]:
        pool.spawn(fetch, name)
    pool.join()
    seconds = time.perf_counter() - began
    cpu = time.process_time()
    print(json.dumps({"seconds": seconds, "files_per_second": files / seconds, "cpu_seconds": cpu}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
