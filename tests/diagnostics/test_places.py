"""The line that a cause names is the one whose change cures it, with the path as the user sees it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig

import pytest
from program_parts import PATCH


def test_the_import_that_counts_of_several_that_bring_ssl(run, write):
    write("harmless", "import ssl\nimport http.client\n")
    write("harmful", "import json\nimport requests\n")
    app = write("proj", f"import harmless\nimport harmful\n{PATCH}import requests\n")
    answer = run("--app", app, "--json")
    assert answer.cause == ("patched-too-late", "harmful.py:2")
    assert answer.json["facts"]["ssl_imported_before_patch_by"] == "harmless.py:1"


def test_removing_the_named_line_cures_it(run, write):
    write("harmful", "import json\n")
    app = write("proj", f"import ssl\nimport harmful\n{PATCH}import requests\n")
    assert run("--app", app, "--json").json["verdict"] == "concurrent"


def test_cause_in_a_server_that_imports_ssl_itself(run, write):
    text = "import requests\n\ndef app(environ, start):\n    start('200 OK', [])\n    return [b'']\n"
    write("wsgi", text)
    write("conf", "import json\nimport requests\nbind = '127.0.0.1:0'\nworker_class = 'gevent'\n")
    argv = [sys.executable, "-m", "gunicorn", "-c", "conf.py", "wsgi:app"]
    answer = run("--json", "--fix", "--after", "1s", "--", *argv)
    assert answer.cause == ("patched-too-late", "conf.py:2"), answer
    [remedy] = answer.json["remedies"]
    assert (remedy["code"], remedy["where"]) == ("patch-all-first", "the first line of conf.py")


def test_cause_in_an_installed_application(run, tmp_path):
    (tmp_path / "site-packages" / "shop").mkdir(parents=True)
    (tmp_path / "site-packages" / "shop" / "__init__.py").write_text("import json\nimport requests\n")
    text = "from shop import requests\n\ndef app(environ, start):\n    pass\n"
    (tmp_path / "site-packages" / "shop" / "wsgi.py").write_text(text)
    argv = [sys.executable, "-m", "gunicorn", "-k", "gevent", "-b", "127.0.0.1:0", "--preload"]
    env = {"PYTHONPATH": str(tmp_path / "site-packages")}
    answer = run("--json", "--after", "4s", "--", *argv, "shop.wsgi:app", env=env)
    assert answer.cause == ("patched-too-late", "shop/__init__.py:2"), answer


def test_patching_inside_a_function_counts(run, write):
    text = """
        import requests

        def fetch(url):
            from gevent import monkey
            monkey.patch_all(ssl=False)
            requests.get(url)
    """
    answer = run("--app", write("proj", text) + ":fetch", "--json")
    assert answer.cause == ("ssl-unpatched", "proj.py:6"), answer


@pytest.fixture
def environment_with_pth(tmp_path):
    """Return the interpreter of an environment that has what ours has, and the folder of its ``.pth``
    files."""
    argv = [sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"]
    subprocess.run(argv, check=True, timeout=60)
    [folder] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (folder / "+ours.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return tmp_path / "venv" / "bin" / "python", folder


@pytest.mark.parametrize("way", ["an application", "a command"])
def test_a_pth_file_by_its_line_and_an_earlier_one_as_the_remedy(run, write, environment_with_pth, way):
    python, folder = environment_with_pth
    (folder / "trap.pth").write_text("# a comment\n\nimport urllib3\n")
    app = write("proj", f"{PATCH}import requests\n")
    target = ["--", python, f"{app}.py"] if way == "a command" else ["--python", python, "--app", app]
    answer = run("--json", "--fix", *target)
    code, where = answer.cause
    assert (code, where.rpartition("/")[2]) == ("patched-too-late", "trap.pth:3")
    remedy = next(each for each in answer.json["remedies"] if each["code"] == "patch-before-everything")
    assert remedy["where"].startswith("as the file 0")
    (folder / remedy["where"].split()[3]).write_text(remedy["line"] + "\n")
    assert run("--json", *target).json["verdict"] == "concurrent"


def test_hub_holder_is_found_when_a_pth_file_patches(run, write, environment_with_pth):
    python, folder = environment_with_pth
    (folder / "00-gevent.pth").write_text("import gevent.monkey; gevent.monkey.patch_all()\n")
    text = """
        import gevent
        import gevent.monkey
        import requests

        sleep = gevent.monkey.get_original("time", "sleep")
        session = requests.Session()
        session.hooks["response"].append(lambda answer, **more: sleep(0.2))
        gevent.joinall([gevent.spawn(session.get, "https://localhost:9/") for _ in range(10)])
    """
    answer = run("--json", "--", python, write("app", text) + ".py")
    assert answer.code == 1, answer
    assert answer.cause == ("blocking-call", "app.py:8")


GOES_ELSEWHERE = {
    "chdir": "os.chdir('/')",
    "a fork": "if os.fork(): os._exit(0)\nos.setsid()\nos.chdir('/')",
}


@pytest.mark.parametrize("how", ["chdir", "a fork"])
def test_paths_are_as_the_user_started_the_command(run, write, how):
    text = "import os\nimport requests\nimport grequests\nimport urllib3.contrib.pyopenssl as wrapper\n"
    text += f"{GOES_ELSEWHERE[how]}\nwrapper.inject_into_urllib3()\n"
    number = len(text.splitlines())
    answer = run("--json", "--fix", "--", sys.executable, write("app", text) + ".py")
    assert answer.cause == ("pyopenssl-unpatched-select", f"app.py:{number}"), answer
    where = {each["code"]: each["where"] for each in answer.json["remedies"]}
    assert where["patch-all-first"] == "the first line of app.py"
    assert where["patch-select"] == "the last line of app.py"


def test_package_import_is_located_in_its_init(run, write, tmp_path):
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "__init__.py").write_text('"""A project."""\n\nimport requests\n')
    (tmp_path / "proj" / "wsgi.py").write_text(PATCH)
    answer = run("--app", "proj.wsgi", "--json", "--fix")
    assert answer.cause == ("patched-too-late", "proj/__init__.py:3"), answer
    [remedy] = answer.json["remedies"]
    assert remedy["where"] == "in front of proj/__init__.py:3"


def test_empty_init_is_not_named(run, write, tmp_path):
    (tmp_path / "proj").mkdir()
    (tmp_path / "proj" / "__init__.py").write_text('"""A project."""\n')
    (tmp_path / "proj" / "wsgi.py").write_text(f"import requests\n{PATCH}")
    answer = run("--app", "proj.wsgi", "--json", "--fix")
    [remedy] = answer.json["remedies"]
    assert remedy["where"] == "the first line of proj/wsgi.py"


@pytest.mark.parametrize("way", ["an application", "a command"])
def test_pth_file_before_the_sitecustomize_of_a_tool_is_measured(run, write, environment_with_pth, way):
    # No .pth file sorts behind the remedy: it is read before sitecustomize all the same.
    python, folder = environment_with_pth
    auto = folder / "tool" / "auto"
    auto.mkdir(parents=True)
    (auto / "sitecustomize.py").write_text("import os\nimport urllib3\n")
    app = write("proj", f"{PATCH}import requests\n")
    target = ["--", python, f"{app}.py"] if way == "a command" else ["--python", python, "--app", app]
    answer = run("--json", "--fix", *target, env={"PYTHONPATH": str(auto)})
    assert answer.cause == ("patched-too-late", "tool/auto/sitecustomize.py:2")
    # A file of the user's comes before a change of the tool's own file.
    remedy, *_ = answer.json["remedies"]
    assert (remedy["where"], answer.json["tried"]) == (f"as the file {folder / 'gevent-first.pth'}", [])
    (folder / "gevent-first.pth").write_text(remedy["line"] + "\n")
    again = run("--json", *target, env={"PYTHONPATH": str(auto)})
    assert again.json["verdict"] == "concurrent", again
