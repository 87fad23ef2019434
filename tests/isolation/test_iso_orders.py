"""``apply()`` and ``require()``, one process for each order of imports, patches and forks."""

from __future__ import annotations

from typing import Any

import pytest

from downloader.process import patching, tls_facts

APPLY = """
from downloader.process import patching
tell(refused=refusal(patching.apply), requests="requests" in sys.modules)
"""


def test_a_clean_process_is_patched_and_https_is_concurrent(run: Any, tls: Any) -> None:
    facts = run(
        """
from downloader.process import patching
patched = patching.apply()
tell(early=[n for n in ("requests", "urllib3", "OpenSSL") if n in sys.modules])
import requests, queue, gevent.queue, urllib3.connectionpool as pools
pools.ConnectionPool.QueueCls = None
settled = patching.secure_urllib3()
tell(queue=pools.ConnectionPool.QueueCls is gevent.queue.LifoQueue)
tell(fetched=fetch(10, 20), again=patching.apply() == settled == patching.require() == patched,
     summary=patched.summary, flags=[patched.select, patched.thread, patched.ssl],
     modules=patched.modules, undone=patched.pyopenssl_undone)
""",
        **tls,
    )
    assert facts["early"] == []
    assert facts["queue"]
    assert facts["fetched"] == {"ok": 10, "peak": 10}
    assert facts["again"]
    assert facts["flags"] == [True, True, True]
    assert {"socket", "ssl", "select", "selectors", "threading", "time"} <= set(facts["modules"])
    assert facts["undone"] is False
    assert facts["summary"].startswith("patched: ")
    assert " select " in facts["summary"]
    assert facts["summary"].endswith("; no pyOpenSSL in urllib3")


def test_the_server_can_tell_serial_from_concurrent(run: Any, tls: Any) -> None:
    """The baseline: what grequests does, with pyOpenSSL injected."""
    facts = run(
        """
from gevent import monkey
monkey.patch_all(thread=False, select=False)
import urllib3.contrib.pyopenssl as injection
injection.inject_into_urllib3()
tell(fetched=fetch(3, 0.3))
""",
        **tls,
    )
    assert facts["fetched"] == {"ok": 3, "peak": 1}


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("import ssl", "ssl"),
        ("from ssl import SSLContext", "ssl"),
        ("import requests", "requests"),
        ("from requests import get", "requests"),
        ("import urllib3", "urllib3"),
        ("import http.client", "http.client"),
        ("from http import client", "http.client"),
        ("import urllib.request", "urllib.request"),
        ("import asyncio", "asyncio"),
        ("import aiolike", "aiolike"),
        ("def late():\n    import ssl\nlate()", "ssl"),
        ("def late():\n    import http.client\nlate()", "http.client"),
    ],
)
def test_an_early_import_is_refused_and_named(run: Any, statement: str, named: str) -> None:
    files = {
        "app.py": f"import json\n\n{statement}\n",
        "lib/site-packages/aiolike/__init__.py": "from .connector import Connector\n",
        "lib/site-packages/aiolike/connector.py": "import ssl\nclass Connector: pass\n",
    }
    facts = run(f"import app\n{APPLY}tell(file=app.__file__)\n", files)
    line = 3 if "late" not in statement else 4
    assert f"{facts['file']}:{line} (app → " in facts["refused"]
    assert f"→ {named}" in facts["refused"]
    assert "ssl" in facts["refused"].partition(" imported before patching")[0]


@pytest.mark.parametrize("name", ["sitecustomize", "usercustomize"])
def test_a_customize_module_is_named(run: Any, name: str) -> None:
    load = "" if name == "sitecustomize" else f"import {name}\n"  # a venv has no user site
    facts = run(load + APPLY, {f"lib/site-packages/{name}.py": "import ssl\n"})
    assert f"{name}.py:1 ({name} → ssl)" in facts["refused"]


def test_a_pth_file_is_named(run: Any) -> None:
    load = "import site\nsite.addsitedir('lib/site-packages')\n"
    facts = run(load + APPLY, {"lib/site-packages/early.pth": "import ssl\n"})
    assert "early.pth:1 (early.pth → ssl)" in facts["refused"]


def test_refusal_states_when_the_importer_is_unknown(run: Any) -> None:
    facts = run("__import__('ssl')\n" + APPLY)
    assert "ssl imported before patching: its importer left no trace (ssl)" in facts["refused"]


def test_a_process_patched_in_part_is_refused(run: Any) -> None:
    app = "from gevent import monkey\n\nmonkey.patch_all(thread=False, select=False)\n"
    facts = run(f"import app\n{APPLY}", {"app.py": app})
    assert "only a part" in facts["refused"]
    assert "app.py:3 (app → gevent.monkey)" in facts["refused"]
    for missing in ("select.poll", "select.select", "_thread.start_new_thread"):
        assert missing in facts["refused"]
    for present in ("ssl.SSLContext", "socket.socket", "time.sleep"):
        assert present not in facts["refused"]


def test_grequests_is_named(run: Any) -> None:
    facts = run(f"import app\n{APPLY}", {"app.py": "import grequests\n"})
    assert "select.poll" in facts["refused"]
    assert "app.py:1 (app → grequests → gevent.monkey)" in facts["refused"]


def test_a_completely_patched_process_is_accepted(run: Any, tls: Any) -> None:
    facts = run(
        f"""
from gevent import monkey
monkey.patch_all()
import requests
{APPLY}
patching.secure_urllib3()
tell(fetched=fetch(10, 20))
""",
        **tls,
    )
    assert facts["refused"] is None
    assert facts["fetched"] == {"ok": 10, "peak": 10}


def test_ssl_alone_before_a_complete_patch_is_accepted(run: Any, tls: Any) -> None:
    """The state of the process decides, not the order: no module kept an original."""
    facts = run(
        f"""
import http.client
from gevent import monkey
monkey.patch_all()
{APPLY}
tell(fetched=fetch(10, 20))
""",
        **tls,
    )
    assert facts["refused"] is None
    assert facts["fetched"] == {"ok": 10, "peak": 10}


@pytest.mark.parametrize(
    ("statement", "keeper"),
    [
        ("import requests", "urllib3.util.ssl_"),
        ("from ssl import SSLContext", "app"),
        ("import ssl\ncontext = ssl.create_default_context()", "app"),
        ("import ssl\nclass Own(ssl.SSLContext): pass", "app"),
    ],
)
def test_a_complete_patch_after_an_import_is_refused(run: Any, statement: str, keeper: str) -> None:
    facts = run(
        f"""
import warnings, app
from gevent import monkey
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    monkey.patch_all()
{APPLY}""",
        {"app.py": f"{statement}\n"},
    )
    assert f"{keeper} bound ssl before gevent patched it: " in facts["refused"]
    assert "app.py:1 (app" in facts["refused"]


def test_a_hub_before_patching_is_refused(run: Any) -> None:
    facts = run(f"import gevent\ngevent.sleep(0)\n{APPLY}")
    assert "a gevent hub existed before patching" in facts["refused"]


def test_a_gevent_warning_is_refused(run: Any) -> None:
    facts = run(
        """
import threading, time
from downloader.process import patching
def act():
    tell(refused=refusal(patching.apply), again=refusal(patching.apply))
    os._exit(0)
threading.Thread(target=act).start()
time.sleep(60)
"""
    )
    assert "gevent warned while patching: Monkey-patching " in facts["refused"]
    assert facts["again"] == facts["refused"]


def test_a_cancelled_patch_is_refused(run: Any) -> None:
    facts = run(
        f"""
from gevent import events
def cancel(event):
    if isinstance(event, events.GeventWillPatchModuleEvent) and event.module_name == "select":
        raise events.DoNotPatch
events.subscribers.append(cancel)
{APPLY}"""
    )
    assert "not gevent's: select.select, select.poll" in facts["refused"]


FORK = """
from downloader.process import patching
def child(act):
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_child_of_an_unpatched_parent_can_be_patched(run: Any, tls: Any) -> None:
    facts = run(
        f"""{FORK}
def act():
    patching.apply()
    import requests
    patching.secure_urllib3()
    tell(fetched=fetch(10, 20))
child(act)
import select, socket, time
tell(parent=[x.__module__ for x in (time.sleep, select.select, socket.socket)],
     gevent="gevent" in sys.modules, ssl="ssl" in sys.modules, required=refusal(patching.require))
""",
        **tls,
    )
    assert facts["fetched"] == {"ok": 10, "peak": 10}
    assert facts["parent"] == ["time", "select", "socket"]
    assert not facts["gevent"]
    assert not facts["ssl"]
    assert "did not patch this process" in facts["required"]


def test_a_fork_with_a_hub_is_refused(run: Any) -> None:
    facts = run(f"import gevent\ngevent.sleep(0)\n{FORK}child(lambda: exec({APPLY!r}))")
    assert "a gevent hub existed before the fork" in facts["refused"]


def test_a_fork_of_a_patched_process_must_apply_again(run: Any, tls: Any) -> None:
    facts = run(
        f"""{FORK}
patching.apply()
def act():
    tell(before=refusal(patching.require), applied=refusal(patching.apply),
         after=refusal(patching.require), fetched=fetch(10, 20))
child(act)
import gevent
gevent.sleep(0)
child(lambda: tell(with_hub=refusal(patching.apply)))
tell(parent=refusal(patching.require))
""",
        **tls,
    )
    assert "did not patch this process; it is a fork of one that was" in facts["before"]
    assert facts["applied"] is None
    assert facts["after"] is None
    assert facts["fetched"] == {"ok": 10, "peak": 10}
    assert "a gevent hub existed before the fork" in facts["with_hub"]
    assert facts["parent"] is None


def test_require_without_apply(run: Any) -> None:
    facts = run("from downloader.process import patching\ntell(refused=refusal(patching.require))")
    assert "apply() did not patch this process" in facts["refused"]


@pytest.mark.parametrize("name", ["select.poll", "select.select", "socket.socket", "time.sleep"])
def test_require_detects_restored_originals(run: Any, name: str) -> None:
    module, attribute = name.split(".")
    facts = run(
        f"""
from downloader.process import patching
patching.apply()
from gevent import monkey
import {module}
{name} = monkey.get_original("{module}", "{attribute}")
tell(refused=refusal(patching.require))
"""
    )
    assert facts["refused"].endswith(f"not gevent's: {name}")


def test_decision_without_a_process() -> None:
    """The pure decision, where no process is needed."""
    everything = [f"{module}.{name}" for module, names in tls_facts.STANDARD.values() for name in names]
    found = patching._Found(hub=False, forked=False, missing=everything, early=[])
    assert patching._fault(found) is None
    assert patching._fault(found._replace(forked=True)) is None
    assert patching._fault(found._replace(hub=True)) is not None
    assert patching._fault(found._replace(early=["requests"])) is not None
    patched = found._replace(missing=[], early=["ssl", "urllib3", "requests"])
    assert patching._fault(patched) is None
    assert patching._fault(patched._replace(hub=True)) is None
    assert patching._fault(patched._replace(hub=True, forked=True)) is not None
    assert patching._fault(patched._replace(stale="urllib3.util.ssl_")) is not None
    for name in everything:
        assert patching._fault(patched._replace(missing=[name])) is not None
