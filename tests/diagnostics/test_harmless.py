"""What the agent does beside a program never ends it, and changes nothing that the program depends on."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trustme
from harness import environment
from meeting import meeting

__all__ = ["meeting"]

PATCH = "from gevent import monkey; monkey.patch_all()\n"
# Like those of Django: whoever looks at its class or at what it has calls the factory.
LAZY = """\
class Lazy:
    def __getattribute__(self, name):
        raise LookupError("looked at: %s" % name)
"""
# A new thread calls it, so no Python code does.
FROM_C = """\
_thread.start_new_thread(monkey.patch_all, ())
until = time.monotonic() + 10
while not monkey.is_module_patched("select"):
    assert time.monotonic() < until, "it does not patch"
    time.sleep(0.01)
"""
FETCH = """\
import gevent, requests
gevent.joinall([gevent.spawn(requests.get, "https://localhost:9/") for _ in range(4)])
"""


def checked(run, program, text, **env):
    program.write_text(text)
    answer = run("--json", "--", sys.executable, program, env=env)
    assert (answer.code, answer.json["verdict"], answer.json["notes"]) == (0, "concurrent", []), answer


def test_lazy_objects_are_not_looked_at(run, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text("")
    (tmp_path / "own" / "connection.py").write_text(LAZY + "HTTPSettings = HTTPSConnection = Lazy()\n")
    text = PATCH + LAZY + "kept = [Lazy() for _ in range(10)]\nimport own.connection\n" + FETCH
    checked(run, tmp_path / "app.py", text)


def test_function_without_a_caller(run, tmp_path):
    """uwsgi patches from C; there is no frame of a caller."""
    text = "import _thread, time\nfrom gevent import monkey\n" + FROM_C.replace("patch_all", "patch_select")
    checked(run, tmp_path / "app.py", text + PATCH + FETCH)


def test_patching_from_c_has_a_place_in_words(run, write):
    """As by uwsgi --gevent-monkey-patch, after it has loaded the application."""
    write("app", "import _thread, requests, time\nfrom gevent import monkey\n" + FROM_C + FETCH)
    answer = run("--json", "--", sys.executable, "app.py")
    assert (answer.code, answer.cause) == (3, ("patched-too-late", "app.py:1")), answer
    assert "afterwards compiled code calls patch_all()" in answer.json["causes"][0]["evidence"]


def test_authorities_of_the_application_are_trusted_as_well(run, tmp_path):
    """A settings fetch from its own server, before anything is probed."""
    made = trustme.CA()
    bundle = tmp_path / "bundle.pem"
    made.cert_pem.write_to_path(bundle)
    (tmp_path / "folder").mkdir()
    made.cert_pem.write_to_path(tmp_path / "folder" / "own.pem")
    text = f"""\
import ssl, os
own = ssl.PEM_cert_to_DER_cert(open({str(bundle)!r}).read())
for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
    context = ssl.create_default_context(cafile=os.environ[name])
    assert own in context.get_ca_certs(binary_form=True), name
"""
    given = {"SSL_CERT_FILE": bundle, "REQUESTS_CA_BUNDLE": bundle, "CURL_CA_BUNDLE": tmp_path / "folder"}
    env = {name: str(path) for name, path in given.items()}
    # The check comes first, as gunicorn reads its settings before anything is patched.
    checked(run, tmp_path / "app.py", f"{PATCH}{text}{FETCH}", **env)


OWN_SERVER = """\
import os, requests, ssl, urllib.request

url = os.environ["URL"]
session = requests.Session()
{how}

def refused(get, *arguments):
    try:
        get(*arguments)
    except (OSError, requests.ConnectionError) as error:
        assert "certificate verify failed" in str(error), error
        return
    raise AssertionError("an unknown authority is trusted")

assert session.get(url).text == "ok"
refused(requests.get, url)
refused(urllib.request.urlopen, url)
loaded = ssl.create_default_context().cert_store_stats()["x509"]
with open(os.environ["COUNTED"], "w") as counted:
    counted.write(str(loaded))
"""


@pytest.mark.parametrize("how", ["session.verify = os.environ['OWN_CA']", "session.verify = False"])
@pytest.mark.parametrize("target", ["command", "app"])
def test_what_is_trusted_stays_so_where_no_variable_says_it(run, tmp_path, meeting, how, target):
    """A variable beats what a session verifies with, and one that has the probe's authority alone hides all
    others: the requests that the program makes to its own servers would fail, while it is checked only."""
    (tmp_path / "own.py").write_text(OWN_SERVER.format(how=how))
    env = {"URL": meeting.url, "OWN_CA": meeting.ca, "COUNTED": str(tmp_path / "counted")}
    subprocess.run([sys.executable, "own.py"], cwd=tmp_path, env=environment(**env), check=True, timeout=60)
    loaded = int((tmp_path / "counted").read_text())

    # What the application verifies with does not matter where it fetches the probe's URL either.
    text = PATCH + "import own\ndef fetch(url):\n    own.session.get(url).raise_for_status()\n"
    (tmp_path / "app.py").write_text(text + (FETCH if target == "command" else ""))
    asked = ["--", sys.executable, "app.py"] if target == "command" else ["--app", "app:fetch"]
    answer = run("--json", *asked, env=env)
    assert (answer.code, answer.json["verdict"]) == (0, "concurrent"), answer
    # What the command fetches is by requests.get: its session is another client.
    others = any("session (own.py)" in note for note in answer.json["notes"])
    assert others == (target == "command"), answer
    assert int((tmp_path / "counted").read_text()) >= loaded + 1  # the probe's


def test_remedy_is_not_in_an_installed_package(run, tmp_path):
    """A tool puts a sitecustomize.py of its own on the path: the next version would undo a change of it."""
    packages = tmp_path / "env" / "site-packages"
    auto = packages / "tool" / "auto"
    auto.mkdir(parents=True)
    (auto / "sitecustomize.py").write_text("import os\nimport urllib3\n")
    (tmp_path / "app.py").write_text(PATCH + "import requests\n" + FETCH)
    env = {"PYTHONPATH": f"{auto}:{packages}"}
    answer = run("--json", "--fix", "--app", "app", env=env)
    assert answer.cause == ("patched-too-late", "tool/auto/sitecustomize.py:2"), answer

    def places(key):
        return [each["where"] for each in answer.json[key] if each["code"] == "patch-before-everything"]

    # Tried first; here it is no folder in which Python looks for such files.
    assert places("tried") == [f"as the file {packages / 'gevent-first.pth'}"]
    assert places("remedies") == ["the first line of tool/auto/sitecustomize.py"]
