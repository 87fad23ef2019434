"""Typical programs of celery, locust, flask, boto3, httpx, geventhttpclient and pytest.

The expected result is measured first, without the diagnostics: see ``meeting``. The packages are in a
virtual environment of their own, which ``diagnostics.environments`` keeps; ``PROGRAMS_PYTHON`` names
another interpreter for it.
"""

from __future__ import annotations

import os
import sys

import pytest
from meeting import meeting, said
from program_parts import INJECT, PATCH
from watching import free_port

from diagnostics.environments import prepare

__all__ = ["meeting", "said"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PACKAGES = (
    "boto3",
    "celery",
    "flask",
    "gevent",
    "geventhttpclient",
    "grequests",
    "httpx",
    "locust",
    "pyopenssl",
    "requests",
)
START = """
import os

import gevent

URL, REQUESTS = os.environ["URL"], int(os.environ["REQUESTS"])
"""
SPAWN = """
gevent.joinall([gevent.spawn(fetch) for _ in range(REQUESTS)], raise_error=True)
"""


@pytest.fixture(scope="module")
def python():
    """Return an interpreter that has ``PACKAGES``."""
    return prepare(os.environ.get("PROGRAMS_PYTHON", sys.executable), PACKAGES, lambda text: None)


# celery

TASKS = """
import os
import sys

import requests
from celery import Celery
from celery.signals import worker_ready

app = Celery("tasks", broker="memory://")
app.conf.worker_concurrency = 10
app.conf.task_ignore_result = True

@app.task
def fetch():
    requests.get(os.environ["URL"], timeout=30)

@worker_ready.connect
def begin(**kwargs):
    for _ in range(int(os.environ["REQUESTS"])):
        fetch.delay()
"""
CELERY = ("-m", "celery", "-A", "tasks", "worker", "--without-mingle", "--without-gossip")


@pytest.mark.parametrize("fetches", [True, False], ids=["busy", "idle"])
def test_celery_whose_pool_is_an_option(said, write, python, fetches):
    write("tasks", TASKS if fetches else TASKS.replace("in range(", "in range(0 * "))
    argv = [python, *CELERY, "-P", "gevent"]
    if fetches:
        said(argv, 3)
    else:
        said(argv, None, "--after", "3s", verdict="concurrent")


CONFIGURED = 'app.conf.worker_pool = "gevent"\n'


def test_celery_whose_pool_is_in_its_configuration_and_which_patches(said, write, python):
    write("tasks", PATCH + TASKS + CONFIGURED)
    said([python, *CELERY], 3)


def test_celery_whose_pool_is_in_its_configuration(said, write, python):
    # celery patches only when it sees the option, and no task is ever run: the worker does not yield its
    # thread.
    write("tasks", TASKS + CONFIGURED)
    answer = said([python, *CELERY], None, "--after", "3s", verdict="error")
    assert answer.cause == ("not-patched", "tasks.py:5")


def test_celery_whose_tasks_share_a_pool(said, write, python):
    shared = """
session = requests.Session()
session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=1, pool_block=True))

@app.task"""
    text = TASKS.replace("@app.task", shared.lstrip()).replace("requests.get", "session.get")
    write("tasks", text)
    answer = said([python, *CELERY, "-P", "gevent"], 1, many=5)
    assert answer.cause == ("pool-of-one", "tasks.py:14")


# locust

LOCUST = """
import os

from locust import HttpUser, constant, task

class User(HttpUser):
    host = os.environ["URL"].rstrip("/")
    wait_time = constant(0)

    def on_start(self):
        self.client.verify = False

    @task
    def fetch(self):
        self.client.get("/")
"""
POOL = """
from urllib3 import PoolManager

User.pool_manager = PoolManager(maxsize=1, block=True)
"""
BLOCKS = """
import ctypes
from locust import events

@events.request.add_listener
def written(**kwargs):
    ctypes.CDLL(None).usleep(300000)
"""
HEADLESS = ("-m", "locust", "-f", "locustfile.py", "--headless", "-u", "3", "-r", "3")


def test_locust(said, write, python):
    write("locustfile", LOCUST)
    said([python, *HEADLESS], 3)


def test_locust_whose_users_share_a_pool(said, write, python):
    write("locustfile", LOCUST + POOL)
    answer = said([python, *HEADLESS, "-u", "5", "-r", "5"], 1, many=5)
    assert answer.cause == ("pool-of-one", "locustfile.py:19")


def test_locust_with_a_listener_that_blocks(said, write, python):
    write("locustfile", LOCUST + BLOCKS)
    answer = said([python, *HEADLESS], None, verdict="serialized")
    assert answer.cause == ("blocking-call", "locustfile.py:22")


FAST = LOCUST.replace("HttpUser", "FastHttpUser").replace("self.client.verify = False", "pass")


def test_locust_with_its_fast_client(said, write, python):
    write("locustfile", FAST)
    said([python, *HEADLESS], 3)


# flask

FLASK = """
import os

import requests
from flask import Flask
from gevent.pywsgi import WSGIServer

app = Flask(__name__)

@app.route("/")
def index():
    return requests.get(os.environ["URL"], timeout=30).text

if __name__ == "__main__":
    WSGIServer(("127.0.0.1", int(os.environ["PORT"])), app).serve_forever()
"""


@pytest.mark.parametrize(
    ("begins", "most", "cause"),
    [
        (PATCH, 3, None),
        ("", 1, ("not-patched", "app.py:4")),
        (INJECT, 1, ("pyopenssl-unpatched-select", "app.py:4")),
    ],
    ids=["healthy", "not-patched", "injected"],
)
def test_flask_under_a_server_of_gevents(said, write, python, begins, most, cause):
    write("app", begins + FLASK)
    answer = said([python, "app.py"], most, "--after", "2s", port=free_port())
    assert cause is None or answer.cause == cause


# boto3

BOTO = """
import boto3

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-west-1"}
s3 = boto3.client("s3", endpoint_url=URL, **KEYS)

def fetch():
    s3.head_bucket(Bucket="mine")
"""


def test_boto3_imported_before_patching(said, write, python):
    write("app", "import botocore.session\n" + PATCH + START + BOTO + SPAWN)
    answer = said([python, "app.py"], 0)
    assert answer.cause == ("patched-too-late", "app.py:1")


# httpx

HTTPX = """
import httpx

client = httpx.Client(timeout=30)

def fetch():
    client.get(URL)
"""


def test_httpx_with_a_hook_that_blocks(said, write, python):
    hook = """
import ctypes

def hook(response):
    ctypes.CDLL(None).usleep(300000)

client.event_hooks = {"response": [hook]}
"""
    write("app", PATCH + START + HTTPX + hook + SPAWN)
    answer = said([python, "app.py"], None, verdict="serialized", many=5)
    assert answer.cause == ("blocking-call", "app.py:19")


# geventhttpclient

OWN = """
from geventhttpclient import HTTPClient

client = HTTPClient.from_url(
    URL, concurrency=10, network_timeout=30, ssl_options={"ca_certs": os.environ["SSL_CERT_FILE"]}
)

def fetch():
    assert client.get("/").status_code == 200
"""


def test_geventhttpclient_that_is_not_patched_with_a_context_of_gevents(said, write, python):
    context = """
from gevent import ssl

def context(cafile):
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(cafile)
    return made
"""
    text = OWN.replace("concurrency=10", "concurrency=10, ssl_context_factory=context")
    write("app", START + context + text + SPAWN)
    said([python, "app.py"], 3)


# all three

CLIENTS = pytest.mark.parametrize("client", [BOTO, HTTPX, OWN], ids=["boto3", "httpx", "geventhttpclient"])


@CLIENTS
def test_client(said, write, python, client):
    write("app", PATCH + START + client + SPAWN)
    said([python, "app.py"], 3)


@CLIENTS
def test_client_that_is_not_patched(said, write, python, client):
    # The sockets of geventhttpclient are gevent's, but its context is the one that ssl makes.
    write("app", START + client + SPAWN)
    answer = said([python, "app.py"], 1)
    assert answer.cause == ("not-patched", "app.py:4")


@pytest.mark.parametrize(
    "client",
    [
        HTTPX.replace("timeout=30", "limits=httpx.Limits(max_connections=1)"),
        OWN.replace("concurrency=10, ", ""),
    ],
    ids=["httpx", "geventhttpclient"],
)
def test_client_with_one_connection(said, write, python, client):
    write("app", PATCH + START + client + SPAWN)
    answer = said([python, "app.py"], 1, many=5)
    assert answer.cause == ("pool-of-one", "app.py:11")


@pytest.mark.parametrize("client", [HTTPX, OWN], ids=["httpx", "geventhttpclient"])
def test_client_that_has_a_connection_and_a_lock_around_it(run, write, meeting, python, client):
    locked = """
import threading

lock = threading.Lock()
fetch()

def get():
    with lock:
        fetch()

gevent.joinall([gevent.spawn(get) for _ in range(6)])
"""
    write("app", PATCH + START + client + locked)
    env = {"URL": meeting.url, "REQUESTS": "6", "SSL_CERT_FILE": meeting.ca}
    answer = run("--", python, "app.py", env=env)
    assert answer.code == 4, answer
    assert "greenlets waited at app.py" in answer.line


# as applications

APPLICATIONS = {
    "boto3": """
import boto3

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-west-1"}
session = boto3.Session(**KEYS)

def fetch(url):
    session.client("s3", endpoint_url=url).head_bucket(Bucket="mine")
""",
    "geventhttpclient": """
import geventhttpclient

def fetch(url):
    assert geventhttpclient.get(url).status_code == 200
""",
    "flask": """
import requests
from flask import Flask

app = Flask(__name__)

@app.route("/<path:url>")
def fetch(url):
    return requests.get(url).text
""",
}


DRIVER = """
import proj

def fetch():
    proj.fetch(URL)
"""


@pytest.fixture
def checked(run, meeting, write, tmp_path, python):
    """Measure the application ``proj``, then diagnose it."""

    def ask(text, most):
        write("proj", text)
        write("drive", (PATCH if text.startswith(PATCH) else "") + START + DRIVER + SPAWN)
        assert meeting.of(3, [python, "drive.py"], tmp_path) == most
        answer = run("--json", "--python", python, "--app", "proj:fetch")
        assert answer.json["verdict"] == {3: "concurrent", 1: "serialized"}[most], answer
        return answer

    return ask


@pytest.mark.parametrize("client", APPLICATIONS)
def test_applications(checked, client):
    checked(PATCH + APPLICATIONS[client], 3)


@pytest.mark.parametrize("client", APPLICATIONS)
def test_applications_that_are_not_patched(checked, client):
    answer = checked("import gevent\n" + APPLICATIONS[client], 1)
    assert answer.cause == ("not-patched", "proj.py:1")


def test_a_session_of_geventhttpclient_has_one_connection(checked):
    text = "from geventhttpclient import Session\n\nsession = Session()\nfetch = session.get\n"
    answer = checked(PATCH + text, 1)
    assert answer.cause == ("pool-of-one", "proj.py:4")
