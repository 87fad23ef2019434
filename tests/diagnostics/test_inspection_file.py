"""``https_inspection.py`` by itself: a copy of one file, on every Python of the machine."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest
from harness import environment

from diagnostics.agent.https_agent import https_inspection
from diagnostics.environments import Unavailable, find, prepare
from diagnostics.source_places import is_own, where
from diagnostics.unpacking import _copy
from downloader.process import tls_facts

ROOT = Path(__file__).parents[2]
FILE = ROOT / "diagnostics" / "agent" / "https_agent" / "https_inspection.py"
VERSIONS = ("2.7", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
# The versions that have wheels for these Pythons, and their pips.
OLD = ["gevent==1.4.0", "greenlet==0.4.16", "grequests==0.3.0", "requests==2.21.0", "urllib3==1.24.1"]
MIDDLE = ["gevent==24.2.1", "requests"]
NEW = ["gevent", "requests"]
PACKAGES = {**dict.fromkeys(("2.7", "3.6", "3.7"), OLD), **dict.fromkeys(("3.8", "3.9", "3.10"), MIDDLE)}
# What gevent's looks like to the file: it has replaced some functions, and keeps the originals.
GEVENT = {
    "gevent/__init__.py": "",
    "gevent/ssl.py": "class SSLContext(object):\n    protocol = 2\nclass SSLSocket(object): pass\n",
    "gevent/socket.py": "def create_connection(): pass\nclass socket(object): pass\n",
    "gevent/select.py": "def select(): pass\n",
    "gevent/monkey.py": """
        import gevent.select, gevent.socket, gevent.ssl, sys
        saved = {}
        def patch_all(select=True, ssl=True):
            for name in ["socket"] + ["select"] * select + ["ssl"] * ssl:
                module, ours = __import__(name), sys.modules["gevent." + name]
                saved[name] = dict(vars(module))
                for each in list(vars(ours)):
                    if not each.startswith("_"):
                        setattr(module, each, getattr(ours, each))
                if name == "select":
                    module.__dict__.pop("poll", None)
        """,
    "urllib3/__init__.py": "",
    "urllib3/util/__init__.py": "IS_PYOPENSSL = False\n",
    "urllib3/util/ssl_.py": "IS_PYOPENSSL = False\nfrom ssl import SSLContext\n",
    "urllib3/contrib.py": """
        import urllib3.util.ssl_
        def inject_into_urllib3():
            urllib3.util.ssl_.IS_PYOPENSSL = True
        """,
    "cluster/__init__.py": "import urllib3.util.ssl_\n",  # as elasticsearch
    "harmless/__init__.py": "",
    "truststore/__init__.py": "from truststore._api import inject_into_ssl\n",
    "truststore/_api.py": """
        import ssl
        class SSLContext(ssl.SSLContext):
            pass
        def inject_into_ssl():
            import urllib3.util.ssl_
            ssl.SSLContext = urllib3.util.ssl_.SSLContext = SSLContext
        """,
}
# Modules of the user's.
MODULES = {
    "late.py": "import urllib3.util.ssl_\n",
    "patches.py": "from gevent import monkey\nmonkey.patch_all()\nimport urllib3.util.ssl_\n",
    "boots.py": """
        import json
        def boot():
            import importlib
            importlib.import_module("urllib3.util.ssl_")
        boot()
        """,
    "imports.py": "def boot():\n    import urllib3.util.ssl_\n",
    "parted/__init__.py": "from . import other\nfrom . import inner\n",
    "parted/other.py": "try:\n    import json\nexcept ImportError:\n    import later_json\n",
    "parted/inner.py": "import json\nfrom cluster import urllib3\n",
}
TELL = """
before = set(sys.modules)
import https_inspection
found = https_inspection.inspect()
new = sorted(set(sys.modules) - before - {"https_inspection", "_io", "io", "re"})
print(json.dumps([[[each.code, each.where.rpartition("/")[2]] for each in found.causes], new]))
"""
PATCH = "from gevent import monkey\nmonkey.patch_all()"
# The places are below a line of imports and one with the folder of packages.
SETUPS = {
    "": [],
    "import gevent": [["not-patched", ""]],
    "from gevent import monkey\nmonkey.patch_all()\nimport urllib3.util.ssl_": [],
    "import urllib3.util.ssl_\nfrom gevent import monkey\nmonkey.patch_all()": [
        ["patched-too-late", "app.py:3"]
    ],
    # What comes below the patching did no harm, whatever led to it.
    f"import cluster\n{PATCH}\nimport urllib3": [["patched-too-late", "app.py:3"]],
    f"def load(name):\n    return __import__(name)\nload('urllib3.util.ssl_')\n{PATCH}\nimport urllib3": [
        ["patched-too-late", "app.py:5"]
    ],
    f"import boots\n{PATCH}\nimport urllib3": [["patched-too-late", "boots.py:4"]],
    f"import imports\nimports.boot()\n{PATCH}\nimport urllib3": [["patched-too-late", "imports.py:2"]],
    f"import parted.inner\n{PATCH}\nimport urllib3": [["patched-too-late", "inner.py:2"]],
    "import cluster\nimport patches\nimport urllib3": [["patched-too-late", "app.py:3"]],
    f'"""\nimport urllib3\n"""\nimport cluster\n{PATCH}': [["patched-too-late", "app.py:6"]],
    # Where nothing names it there is no line, rather than one that came afterwards.
    f"exec('import urllib3.util.ssl_')\n{PATCH}\nimport urllib3": [
        ["patched-too-late", "urllib3.util.ssl_"]
    ],
    f"exec('import cluster')\n{PATCH}\nimport late": [["patched-too-late", "urllib3.util.ssl_"]],
    f"import truststore\ntruststore.inject_into_ssl()\n{PATCH}": [["truststore", "app.py:4"]],
    f"{PATCH}\nfrom truststore import inject_into_ssl\ninject_into_ssl()": [["truststore", "app.py:6"]],
    "from gevent import monkey\nmonkey.patch_all(ssl=False)": [["ssl-unpatched", "app.py:4"]],
    "from gevent import monkey\nmonkey.patch_all(select=False)\nimport urllib3.contrib\n"
    "urllib3.contrib.inject_into_urllib3()": [["pyopenssl-unpatched-select", "app.py:6"]],
}

# What loaded it is not in the sources, and what came after it is not named; before 3.8 no order is known.
HIDDEN = {
    f"exec('import urllib3.util.ssl_')\nimport harmless\nimport cluster\n{PATCH}": [
        ["patched-too-late", "urllib3.util.ssl_"]
    ],
}
UNORDERED = ("2.7", "3.6", "3.7")


def copied(folder):
    """Put the one file, and nothing else of ours, into the folder."""
    shutil.copy(FILE, folder)
    for name in ("diagnostics", "downloader"):
        (folder / f"{name}.py").write_text(f"raise SystemError('{name} is not needed')\n")


def told(python, folder, setup):
    """Return what a copy of the file says in an application that is set up so."""
    (folder / "app.py").write_text(f"import json, select, socket, ssl, sys\n{setup}\n{TELL}")
    argv = [python, "-W", "ignore", "-B", "app.py"]
    done = subprocess.run(
        argv, cwd=folder, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_needs_the_standard_library_alone(tmp_path, version):
    python = find(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    copied(tmp_path)
    files = {f"site-packages/{name}": text for name, text in GEVENT.items()}
    for name, text in {**files, **MODULES}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
    place = f"sys.path.insert(1, {str(tmp_path / 'site-packages')!r})"
    for setup, causes in {**SETUPS, **({} if version in UNORDERED else HIDDEN)}.items():
        is_late = any(code == "patched-too-late" for code, _ in causes)
        lines = [place, setup, "import ast" if is_late else ""]  # what it needs to name a line
        assert told(python, tmp_path, "\n".join(lines)) == [causes, []], setup


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_beside_the_real_gevent(tmp_path, version):
    python = find(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    try:
        python = prepare(python, PACKAGES.get(version, NEW), lambda text: None)
    except Unavailable as error:
        pytest.skip(str(error))
    copied(tmp_path)
    patch = "from gevent import monkey; monkey.patch_all()"
    assert told(python, tmp_path, f"{patch}\nimport requests")[0] == []
    assert told(python, tmp_path, "import gevent, requests")[0] == [["not-patched", ""]]
    late = told(python, tmp_path, f"import requests\n{patch}")[0]
    # The older gevents replace the methods of the one class, so that order does not matter to them.
    assert late in ([], [["patched-too-late", "app.py:2"]]), late
    assert version in ("2.7",) or late, late


@pytest.mark.parametrize("name", ["is_gevents", "patched", "tls_of_urllib3", "injected"])
def test_the_facts_of_patching_are_the_downloaders(name):
    def text_of(path):
        tree = ast.parse(path.read_text())
        return next(ast.dump(each) for each in tree.body if getattr(each, "name", "") == name)

    assert text_of(FILE) == text_of(ROOT / "downloader" / "process" / "tls_facts.py")


def test_a_process_ends_where_it_would_be_serial(tmp_path):
    copied(tmp_path)
    (tmp_path / "app.py").write_text("import gevent, https_inspection\nhttps_inspection.exit_if_serial()\n")
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "HTTPS would be serialized here: not-patched: gevent has patched nothing\n"


LAZY = """
class Raises(object):
    def __getattribute__(self, name):
        raise RuntimeError(name)

unbound = None
import importlib.util, json, sys
import gevent.monkey
gevent.monkey.patch_all(ssl={ssl})
import requests, https_inspection
spec = importlib.util.find_spec("later")
spec.loader = importlib.util.LazyLoader(spec.loader)
later = sys.modules["later"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(later)
# As what a framework has for the request of now. gevent, too, would look at it while it patches.
unbound = sys.modules["raises"] = Raises()
sys.modules["nothing"] = None
print(json.dumps([each.code for each in https_inspection.inspect().causes]))
"""


@pytest.mark.parametrize(("ssl", "causes"), [(True, []), (False, ["ssl-unpatched"])])
def test_what_loads_itself_or_raises_is_left_alone(tmp_path, ssl, causes):
    copied(tmp_path)
    (tmp_path / "later.py").write_text("raise SystemError('it was imported')\n")
    (tmp_path / "app.py").write_text(LAZY.format(ssl=ssl))
    argv = [sys.executable, "app.py"]
    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == causes


def test_work_inside_of_a_package_is_the_users(tmp_path):
    # As `diagnostics scenarios` does where it is installed: the application is below site-packages.
    work = tmp_path / "lib" / "site-packages" / "proj"
    for name in ("startup", "vendor/site-packages/other"):
        (work / name).mkdir(parents=True)
    copied(work)
    text = """
        import json, os, https_inspection
        here = os.getcwd()
        paths = ["app.py", "startup/more.py", "vendor/site-packages/other/it.py", "../requests/api.py"]
        print(json.dumps([https_inspection.kind_of_file(os.path.join(here, each)) for each in paths]))
        """
    (work / "app.py").write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, "app.py"], cwd=work, env=environment(), capture_output=True, check=True
    )
    kinds = json.loads(done.stdout)
    assert kinds == ["user", "user", "package", "package"]
    facts = {"cwd": str(work), "path": [str(work / "startup"), str(work.parent), str(tmp_path)]}
    names = ["app.py", "startup/more.py", "vendor/site-packages/other/it.py", "../requests/api.py"]
    spots = [(os.path.normpath(work / name), 3, "") for name in names]
    assert [is_own(spot, facts) for spot in spots] == [kind == "user" for kind in kinds]
    shown = ["app.py:3", "startup/more.py:3", "vendor/site-packages/other/it.py:3", "requests/api.py:3"]
    assert [where(spot, facts) for spot in spots] == shown
    # Started elsewhere, it is a package like any other.
    elsewhere = {**facts, "cwd": str(tmp_path)}
    assert [is_own(spot, elsewhere) for spot in spots] == [False] * 4


def test_the_agent_of_a_zip_file_can_be_read_by_every_user(tmp_path):
    path = tmp_path / "packed.zip"
    with zipfile.ZipFile(path, "w") as opened:
        for name in ("agent/boot.py", "agent/https_agent/life.py"):
            opened.writestr(name, "")
    before = os.umask(0o077)
    try:
        _copy(zipfile.Path(path, "agent/"), tmp_path / "agent")
    finally:
        os.umask(before)
    modes = {
        path.name: path.stat().st_mode & 0o777
        for path in [tmp_path / "agent", *(tmp_path / "agent").rglob("*")]
    }
    assert modes == {"agent": 0o755, "https_agent": 0o755, "boot.py": 0o644, "life.py": 0o644}


def test_what_is_patched_is_told_as_in_the_downloader():
    assert https_inspection.STANDARD == tls_facts.STANDARD
