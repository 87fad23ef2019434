"""pyOpenSSL and truststore: existing injections are undone, later ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

INJECTOR = "import urllib3.contrib.pyopenssl\n\nurllib3.contrib.pyopenssl.inject_into_urllib3()\n"
APPLY = """
from downloader.process import patching
tell(refused=refusal(patching.apply))
"""
STANDARD = """
import ssl, urllib3.util.ssl_
tell(standard=urllib3.util.ssl_.SSLContext is ssl.SSLContext and not urllib3.util.IS_PYOPENSSL)
"""
COPY = {  # the relevant part of a vendored urllib3
    "proj/__init__.py": "",
    "proj/_vendor/__init__.py": "",
    "proj/_vendor/urllib3/__init__.py": "",
    "proj/_vendor/urllib3/util/__init__.py": "from . import ssl_\nIS_PYOPENSSL = False\n",
    "proj/_vendor/urllib3/util/ssl_.py": "from ssl import SSLContext\nIS_PYOPENSSL = False\n",
    "proj/_vendor/urllib3/contrib/__init__.py": "",
    "proj/_vendor/urllib3/contrib/pyopenssl.py": """
from .. import util
class PyOpenSSLContext: pass
original = util.ssl_.SSLContext
def inject_into_urllib3():
    util.ssl_.SSLContext = PyOpenSSLContext
    util.ssl_.IS_PYOPENSSL = util.IS_PYOPENSSL = True
def extract_from_urllib3():
    util.ssl_.SSLContext = original
    util.ssl_.IS_PYOPENSSL = util.IS_PYOPENSSL = False
""",
}


def test_a_later_injection_is_refused_and_https_stays_standard(run: Any, tls: Any) -> None:
    facts = run(
        f"""{APPLY}
import requests
patching.secure_urllib3()
tell(injected=refusal(lambda: __import__("injector")))
{STANDARD}
import urllib3.contrib.pyopenssl as module, inspect
tell(again=refusal(module.inject_into_urllib3), required=refusal(patching.require),
     source="def inject_into_urllib3" in inspect.getsource(module),
     fetched=fetch(10, 20))
""",
        {"injector.py": INJECTOR},
        **tls,
    )
    assert facts["refused"] is None
    assert "injector.py:3 called urllib3.contrib.pyopenssl.inject_into_urllib3()" in (facts["injected"])
    assert facts["standard"]
    assert "called urllib3.contrib.pyopenssl.inject_into_urllib3()" in facts["again"]
    assert facts["required"] is None
    assert facts["source"]
    assert facts["fetched"] == {"ok": 10, "peak": 10}


def test_an_injection_before_anything_else_is_refused(run: Any) -> None:
    facts = run(APPLY, {"sitecustomize.py": INJECTOR})
    assert "ssl, urllib3 imported before patching" in facts["refused"]
    assert "sitecustomize.py:1 (sitecustomize → urllib3" in facts["refused"]


def test_an_injection_into_a_patched_process_is_undone(run: Any, tls: Any) -> None:
    facts = run(
        f"""{APPLY}
{STANDARD}
tell(undone=patching.require().pyopenssl_undone, summary=patching.require().summary,
     again=refusal(urllib3.contrib.pyopenssl.inject_into_urllib3), fetched=fetch(10, 20))
""",
        {"sitecustomize.py": "from gevent import monkey\nmonkey.patch_all()\n" + INJECTOR},
        **tls,
    )
    assert facts["refused"] is None
    assert facts["standard"]
    assert facts["undone"]
    assert facts["summary"].endswith("; pyOpenSSL taken out of urllib3")
    assert "inject_into_urllib3()" in facts["again"]
    assert facts["fetched"] == {"ok": 10, "peak": 10}


def test_bypassing_the_guard_is_detected_and_undone(run: Any) -> None:
    facts = run(
        f"""{APPLY}
import urllib3.contrib.pyopenssl as module, urllib3.util as util
util.SSLContext = util.ssl_.SSLContext = module.PyOpenSSLContext
tell(class_only=refusal(patching.require))
util.ssl_.IS_PYOPENSSL = util.IS_PYOPENSSL = True
tell(flags_too=refusal(patching.require))
settled = patching.secure_urllib3()
tell(undone=settled.pyopenssl_undone, kept=patching.secure_urllib3().pyopenssl_undone)
{STANDARD}
util.ssl_.SSLContext = type("Other", (), {{}})
tell(other=refusal(patching.require))
"""
    )
    assert facts["class_only"] == "pyOpenSSL was injected into urllib3"
    assert facts["flags_too"] == "pyOpenSSL was injected into urllib3"
    assert facts["undone"]
    assert facts["kept"]
    assert facts["standard"]
    assert "not gevent's SSLContext" in facts["other"]


def test_a_vendored_copy_is_guarded(run: Any) -> None:
    facts = run(
        f"""{APPLY}
import injector
tell(injected=refusal(injector.act), required=refusal(patching.require))
import proj._vendor.urllib3.util as util
util.IS_PYOPENSSL = True
tell(flagged=refusal(patching.require))
tell(undone=patching.secure_urllib3().pyopenssl_undone, after=refusal(patching.require))
""",
        COPY
        | {
            "injector.py": "from proj._vendor.urllib3.contrib import pyopenssl\n"
            "def act():\n    pyopenssl.inject_into_urllib3()\n"
        },
    )
    assert (
        "injector.py:3 called proj._vendor.urllib3.contrib.pyopenssl.inject_into_urllib3()"
        in (facts["injected"])
    )
    assert facts["required"] is None
    assert facts["flagged"] == "pyOpenSSL was injected into proj._vendor.urllib3"
    assert facts["undone"]
    assert facts["after"] is None


@pytest.mark.parametrize("prefix", ["", "proj._vendor."])
def test_truststore_is_refused(run: Any, prefix: str) -> None:
    """A stand-in for truststore 0.10: its package takes the function from ``_api``."""
    api = "import ssl\ndef inject_into_ssl():\n    ssl.SSLContext = None\n"
    folder = prefix.replace(".", "/")
    files = {
        "proj/__init__.py": "",
        "proj/_vendor/__init__.py": "",
        f"{folder}truststore/__init__.py": "from ._api import inject_into_ssl\n",
        f"{folder}truststore/_api.py": api,
        "injector.py": f"def act():\n    import {prefix}truststore as t\n    t.inject_into_ssl()\n"
        f"def inner():\n    import {prefix}truststore._api as t\n    t.inject_into_ssl()\n",
    }
    facts = run(
        f"""{APPLY}
import injector
tell(outer=refusal(injector.act), inner=refusal(injector.inner), required=refusal(patching.require))
""",
        files,
    )
    assert "injector.py:3 called " in facts["outer"]
    assert "truststore.inject_into_ssl()" in facts["outer"]
    assert "injector.py:6 called " in facts["inner"]
    assert facts["required"] is None


def test_truststore_injected_before_is_refused(run: Any) -> None:
    facts = run(
        f"""
from gevent import monkey
monkey.patch_all()
import ssl
ssl.SSLContext = type("SSLContext", (ssl.SSLContext,), {{}})
{APPLY}"""
    )
    assert "not ssl.SSLContext: " in facts["refused"]


def test_the_guard_leaves_other_modules_alone(run: Any) -> None:
    """A module of that name without the functions; a package that is not there; a zip archive."""
    facts = run(
        f"""{APPLY}
import importlib.util, zipfile
from importlib.machinery import PathFinder
with zipfile.ZipFile("archive.zip", "w") as archive:
    archive.writestr("zipped/__init__.py", "")
    archive.writestr("zipped/contrib/__init__.py", "")
    archive.writestr("zipped/contrib/pyopenssl.py", "def inject_into_urllib3(): pass")
    archive.writestr("zipped/contrib/other.py", "def inject_into_urllib3(): pass")
sys.path.append("archive.zip")
from zipped.contrib import other, pyopenssl
tell(zipped=refusal(pyopenssl.inject_into_urllib3), other=refusal(other.inject_into_urllib3))
import plain.contrib.pyopenssl
tell(plain=plain.contrib.pyopenssl.VALUE,
     loader=type(plain.contrib.pyopenssl.__spec__.loader).__name__,
     same=(importlib.util.find_spec("truststore") is None) == (PathFinder.find_spec("truststore") is None),
     guards=len(
     [f for f in sys.meta_path if type(f).__module__ == "downloader.process.patching"]))
""",
        {"plain/contrib/pyopenssl.py": "VALUE = 7\n"},
    )
    assert "zipped.contrib.pyopenssl.inject_into_urllib3()" in facts["zipped"]
    assert facts["other"] is None
    assert facts["plain"] == 7
    assert facts["loader"] == "SourceFileLoader"
    assert facts["same"], "a package that is installed or not is found or not"
    assert facts["guards"] == 1
