"""One cell, measured: waits for its turn, runs the stopwatch or the main job, writes NAME.json.

    python cell.py NAME DIRECTORY SETUP [--answers delayed|unstated] [--turns N] [--linger]
                   [--judge PYTHON] [--diagnose ...]

Runs on the cell's own interpreter, Python 2.7 to 3.x. DIRECTORY is shared by all cells and by the
origin, whose ``origin.json`` is waited for. At most N cells measure at one time: each holds one of N
locks. NAME.json is what the stopwatch or the main job printed, or the verdict ``broken`` and why; with
--diagnose also what ``python -m diagnostics`` says: run by this interpreter, or by PYTHON where they cannot
run on this one.
"""

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

_PATIENCE = 120.0  # seconds for the origin to be there, and for a measurement to end
# What would change a client: the environment has no say in a cell.
_FOREIGN = ("_PROXY", "_CA_BUNDLE", "SSL_CERT", "SSLKEYLOG", "PYTHON", "GEVENT")


def origin(directory):
    """Where the servers are, as soon as they are there."""
    path = os.path.join(directory, "origin.json")
    give_up = time.time() + _PATIENCE
    while not os.path.exists(path):
        if time.time() > give_up:
            raise RuntimeError("no origin")
        time.sleep(0.1)
    with open(path) as file:
        return json.load(file)


def turn(directory, turns):
    """An open file with one of the locks on it; kept until it is closed, or this process ends."""
    files = [open(os.path.join(directory, "turn-%d.lock" % number), "w") for number in range(turns)]
    while True:
        for file in files:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except IOError:
                continue
            return file
        time.sleep(0.2)


def command(servers, setup, answers):
    """What is run in the cell."""
    argv = [sys.executable, "main_job.py" if setup == "main_job" else "stopwatch.py"]
    argv += ["--cacert", servers["cacert"]]
    if setup == "main_job":
        return argv + ["--url", servers["files"]]
    file = "/get/file-{:010d}" if answers == "delayed" else "/{}"
    return argv + [setup, "--url", servers[answers] + file, "--warm-up", servers["delayed"] + "/list"]


def measured(argv, project, codes=frozenset({0}), **variables):
    """The record that ``argv`` printed, run beside the set-ups of ``project``; ``codes`` are the exit codes
    of one that worked."""
    environment = dict((k, v) for k, v in os.environ.items() if not any(f in k.upper() for f in _FOREIGN))
    environment.update(variables)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            argv, stdout=out, stderr=err, env=environment, cwd=os.path.join(project, "docker", "inside")
        )
        give_up = time.time() + _PATIENCE
        try:
            while process.poll() is None and time.time() < give_up:
                time.sleep(0.05)
        finally:
            late = process.poll() is None
            if late:
                process.kill()
                process.wait()
        if late:
            return {"verdict": "broken", "why": "no end after %d s" % _PATIENCE}
        out.seek(0)
        err.seek(0)
        said = out.read().decode("utf-8", "replace")
        if process.returncode in codes:
            try:
                return json.loads(said)
            except ValueError:
                pass
        lines = (err.read().decode("utf-8", "replace") or said).splitlines() or [""]
        return {"verdict": "broken", "why": "exit code %s: %s" % (process.returncode, lines[-1])}


def diagnosis(options, judge, project):
    """What the diagnostics, run by ``judge``, say of the process that the same set-up makes."""
    argv = [judge, "-m", "diagnostics", "check", "--json"]
    if judge != sys.executable:
        argv += ["--python", sys.executable]
    argv += options
    said = measured(argv, project, {0, 1, 3}, PYTHONPATH=project)
    return dict((name, said[name]) for name in ("verdict", "why", "error", "causes") if name in said)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("directory")
    parser.add_argument("setup", help="a module of setups, or main_job")
    parser.add_argument("--answers", choices=("delayed", "unstated"), default="delayed")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--linger", action="store_true", help="stay until killed, as compose wants it")
    parser.add_argument("--judge", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--diagnose", nargs=argparse.REMAINDER, help="options for the diagnostics")
    given = parser.parse_args()
    try:
        servers = origin(given.directory)
        lock = turn(given.directory, given.turns)
        project = servers["project"]
        result = measured(command(servers, given.setup, given.answers), project)
        if given.diagnose:
            result["diagnosis"] = diagnosis(given.diagnose, given.judge, project)
        lock.close()
    except Exception as error:
        result = {"verdict": "broken", "why": "%s: %s" % (type(error).__name__, error)}
    path = os.path.join(given.directory, given.name + ".json")
    with open(path + ".part", "w") as file:
        json.dump(result, file)
    os.rename(path + ".part", path)
    while given.linger:
        signal.pause()


if __name__ == "__main__":
    main()
