"""Ten GETs over HTTPS from ten greenlets, each answered after half a second: how long do they take?

    python stopwatch.py SETUP --url 'https://host:port/get/file-{:010d}' --warm-up URL --cacert FILE

Runs on Python 2.7 and 3.x and PyPy, with whatever versions of gevent and requests are there. SETUP is
a module of ``setups``, imported before everything else that matters. Prints one line of JSON:
``{"verdict", "wall_s", "concurrency", "errors": {text: n}, "versions": {name: version}}``; the verdict is
``concurrent``, ``serialized``, ``error`` (fewer than all succeeded) or ``unclear`` (too slow for
the one, too fast for the other). On a busy machine it is too slow for both: then what as many requests take
that are answered at once is left out, and if that does not settle it, it is measured again.
"""

# Nothing is imported here that imports ssl or socket: patching must find them as an application would.
import argparse
import importlib
import json
import re
import sys
import time

_SHOWN = ("gevent", "greenlet", "requests", "urllib3", "grequests", "OpenSSL", "cryptography")
_TRIES = 5


def verdict(requests, delay, wall, failed):
    """One after the other takes ``requests * delay`` or more; in half of that, two were under way."""
    if failed:
        return "error"
    if wall <= 0.5 * requests * delay:
        return "concurrent"
    return "serialized" if 0.98 * requests * delay <= wall <= 1.25 * requests * delay else "unclear"


def measure(urls, cacert, size):
    """Seconds that one GET each of ``urls``, all begun at once, took, and how often each error happened."""
    import gevent
    import requests

    errors = {}

    def get(url):
        try:
            answer = requests.get(url, verify=cacert, timeout=60)
            answer.raise_for_status()
            if size is not None and len(answer.content) != size:
                raise ValueError("%d bytes instead of %d" % (len(answer.content), size))
        except Exception as error:
            shown = re.sub("file-[0-9]+|/[0-9]+", "N", str(error))[-160:]
            text = "%s: %s" % (type(error).__name__, shown)
            errors[text] = errors.get(text, 0) + 1

    began = time.time()
    gevent.joinall([gevent.spawn(get, url) for url in urls])
    return time.time() - began, errors


def versions():
    """Interpreter and packages, as they are in this process."""
    implementation = "PyPy" if hasattr(sys, "pypy_version_info") else "CPython"
    found = {"python": "%s %d.%d.%d" % ((implementation,) + sys.version_info[:3])}
    for name in _SHOWN:
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None)
        if version is not None:
            found[name] = str(version)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("setup")
    parser.add_argument("--url", required=True, help="a number is put in")
    parser.add_argument("--warm-up", required=True, help="answered at once")
    parser.add_argument("--cacert", required=True)
    parser.add_argument("--requests", type=int, default=10)
    parser.add_argument("--delay", type=float, default=0.5, help="after which the server answers")
    parser.add_argument("--size", type=int, default=100, help="of a right answer")
    given = parser.parse_args()

    importlib.import_module("setups." + given.setup)
    # Not to be measured: what only the first request does. It may fail, the others will as well.
    measure([given.warm_up], given.cacert, None)
    urls = [given.url.format(number) for number in range(given.requests)]
    walls = []
    said = "unclear"
    while said == "unclear" and len(walls) < _TRIES:
        wall, errors = measure(urls, given.cacert, given.size)
        walls.append(wall)
        said = verdict(given.requests, given.delay, wall, sum(errors.values()))
        if said == "unclear":
            price, _ = measure([given.warm_up] * given.requests, given.cacert, None)
            said = verdict(given.requests, given.delay, wall - price, sum(errors.values()))
    result = {
        "verdict": said,
        "wall_s": round(wall, 3),
        "concurrency": round(given.requests * given.delay / wall, 2),
        "errors": errors,
        "tries": len(walls),
        "versions": versions(),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
