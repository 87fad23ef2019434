"""Ten GETs over HTTPS from ten greenlets, each answered after half a second: how long do they take?

    python stopwatch.py SETUP --url 'https://host:port/get/file-{:010d}' --warm-up URL --cacert FILE

Runs on Python 2.7 and 3.x and PyPy, with whatever versions of gevent and requests are there. SETUP is
a module of ``setups``, imported before everything else that matters. Prints one line of JSON:
``{"verdict", "wall_s", "concurrency", "errors": {text: n}, "versions": {name: version}}``; the verdict is
``concurrent``, ``serialized``, ``error`` (fewer than all succeeded) or ``unclear`` (too slow for
the one, too fast for the other).
"""

# Nothing is imported here that imports ssl or socket: patching must find them as an application would.
import argparse
import importlib
import json
import re
import sys
import time

_SHOWN = ("gevent", "greenlet", "requests", "urllib3", "grequests", "OpenSSL", "cryptography")


def verdict(requests, delay, wall, failed):
    """Concurrent at 40 % of the best speed, serialized at twice that of one after the other."""
    if failed:
        return "error"
    concurrency = requests * delay / wall
    if concurrency >= 0.4 * requests:
        return "concurrent"
    return "serialized" if concurrency <= 2 else "unclear"


def measure(url, warm_up, cacert, count, size):
    """Seconds that ``count`` GETs took, and how often each error happened."""
    import gevent
    import requests

    errors = {}

    def get(where, expected):
        try:
            answer = requests.get(where, verify=cacert, timeout=60)
            answer.raise_for_status()
            got = len(answer.content)
            if expected is not None and got != expected:
                raise ValueError("%d bytes instead of %d" % (got, expected))
        except Exception as error:
            text = "%s: %s" % (type(error).__name__, re.sub("file-[0-9]+|/[0-9]+", "N", str(error))[-160:])
            errors[text] = errors.get(text, 0) + 1

    # Not to be measured: what only the first request does. It may fail, the others will as well.
    gevent.joinall([gevent.spawn(get, warm_up, None)])
    errors.clear()
    began = time.time()
    gevent.joinall([gevent.spawn(get, url.format(number), size) for number in range(count)])
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
    wall, errors = measure(given.url, given.warm_up, given.cacert, given.requests, given.size)
    result = {
        "verdict": verdict(given.requests, given.delay, wall, sum(errors.values())),
        "wall_s": round(wall, 3),
        "concurrency": round(given.requests * given.delay / wall, 2),
        "errors": errors,
        "versions": versions(),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
