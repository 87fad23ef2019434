"""A wrapper that the agent puts in place of a function looks and behaves like the function."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from harness import environment

from diagnostics import environments
from diagnostics.agent.https_agent.life import VARIABLE
from diagnostics.unpacking import agent_in

# Every function and method of every module, with all that an application can inspect. The modules are those
# that exist with the agent and without it, so that a wrapper is covered wherever it is put.
LOOK = """
import importlib, inspect, json, os, re, sys, types

for name in {modules!r}.split():
    try:
        importlib.import_module(name)
    except ImportError:
        pass
arguments = getattr(inspect, "getfullargspec", None) or inspect.getargspec

def told(function):
    plain = function.__func__ if isinstance(function, (staticmethod, classmethod)) else function
    fields = ["__name__", "__qualname__", "__doc__", "__module__", "__defaults__", "__kwdefaults__"]
    found = [repr(getattr(plain, field, None)) for field in fields]
    found.append(type(function).__name__)
    found.append(repr(sorted(key for key in vars(plain) if key not in ("_https_agent", "__wrapped__"))))
    found.append(repr(arguments(plain)))
    if hasattr(inspect, "signature"):
        try:
            found.append(str(inspect.signature(plain)))
        except ValueError:
            pass
    # A repr can contain the address of an object, which differs.
    return [re.sub("0x[0-9a-f]+", "", each) for each in found]

def functions(owner, depth=0):
    for name, value in sorted(vars(owner).items(), key=lambda pair: pair[0]):
        plain = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        if isinstance(plain, types.FunctionType):
            yield name, value, getattr(plain, "_https_agent", False)
        elif isinstance(value, type) and not depth and value.__module__ == getattr(owner, "__name__", None):
            for inner, method, ours in functions(value, 1):
                yield name + "." + inner, method, ours

found, wrapped = {{}}, []
for name, module in sorted(sys.modules.items(), key=lambda pair: pair[0]):
    if module is None or name.startswith("https_agent"):
        continue
    if not isinstance(module, types.ModuleType) or name in ("__main__", "sitecustomize"):
        continue
    for inner, function, ours in functions(module):
        found[name + ":" + inner] = told(function)
        if ours:
            wrapped.append(name + ":" + inner)
with open(sys.argv[1], "w") as out:
    json.dump([found, wrapped], out)
os._exit(0)
"""
MODULES = """gevent.monkey gevent.ssl gevent.socket http.client httplib urllib3.connection
    urllib3.connectionpool urllib3.contrib.pyopenssl requests truststore OpenSSL.SSL gevent_openssl
    site os ssl botocore.httpsession"""
PATCHED = ("patch_all", "patch_select", "patch_socket", "patch_ssl", "patch_thread", "patch_time")


SLOW = pytest.mark.slow  # between the oldest Python and this one


def spec(tmp_path):
    (tmp_path / "outbox").mkdir(exist_ok=True)
    path = tmp_path / "spec.json"
    # No process waits for a result: this is not the process that would be probed.
    told = {"mode": "check", "outbox": str(tmp_path / "outbox"), "remedies": [], "chosen": ["another"]}
    path.write_text(json.dumps(told))
    return {VARIABLE: str(path), "PYTHONPATH": str(agent_in(path.parent))}


def interpreter(version):
    """Return an interpreter of that version with gevent, from those made for the scenarios; "" is this
    one.
    """
    if not version:
        return sys.executable
    complete = environments.cache_folder().glob(f"{version}-*/complete")
    cached = [path for path in complete if "gevent" in path.read_text()]
    if environments.find(version) is None or not cached:
        pytest.skip(f"there is no environment of Python {version} with gevent")
    return str(max(cached, key=lambda path: len(path.read_text())).parent / "bin" / "python")


@pytest.mark.parametrize(
    "version", ["", "2.7", *(pytest.param(v, marks=SLOW) for v in ("3.7", "3.10", "3.13"))]
)
def test_wrapped_functions_look_unchanged(tmp_path, version):
    python = interpreter(version)
    script = tmp_path / "look.py"
    script.write_text(LOOK.format(modules=MODULES))
    seen = []
    for more in ({}, spec(tmp_path)):
        env = {
            **environment(),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": "",
            **more,
        }
        out = tmp_path / "out.json"
        subprocess.run([python, script, out], env=env, check=True, timeout=60)
        seen.append(json.loads(out.read_text()))
    (plain, none), (noted, wrapped) = seen
    assert none == []
    assert {f"gevent.monkey:{name}" for name in PATCHED} <= set(wrapped)
    assert {"ssl:SSLContext.wrap_socket", "gevent.ssl:SSLContext.wrap_socket"} & set(wrapped)
    differing = {name for name in plain if noted.get(name) != plain[name]}
    assert {name: (plain[name], noted.get(name)) for name in differing} == {}


def test_gevent_monkey_takes_its_options(run, write):
    name = write("script", "import requests\n") + ".py"
    answer = run("--json", "--", sys.executable, "-m", "gevent.monkey", "--no-select", name)
    patched = answer.json["facts"]["patched"]
    assert (patched["select"], patched["socket"]) == (False, True)
    assert answer.json["facts"]["patched_by"] == ["python -m gevent.monkey patch_all(select=False)"]


def test_call_errors_name_the_wrapped_function(tmp_path):
    text = "from gevent import monkey\ntry: monkey.patch_select(1, x=3)\nexcept TypeError as e: print(e)"
    said = []
    for more in ({}, spec(tmp_path)):
        env = {**environment(), "PYTHONPATH": "", **more}
        argv = [sys.executable, "-c", text]
        said.append(subprocess.run(argv, env=env, check=True, timeout=60, capture_output=True).stdout)
    assert said[0] == said[1] != b""


@pytest.mark.parametrize("version", ["2.7", "3.7"])
def test_gevent_monkey_of_an_older_python_runs(tmp_path, version):
    python = interpreter(version)
    (tmp_path / "script.py").write_text("import select, socket; print(socket.socket.__module__)")
    env = {**environment(), "PYTHONDONTWRITEBYTECODE": "1", **spec(tmp_path)}
    argv = [python, "-m", "gevent.monkey", "--no-select", tmp_path / "script.py"]
    done = subprocess.run(argv, env=env, timeout=60, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("gevent."), done.stderr
