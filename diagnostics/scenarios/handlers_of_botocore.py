"""A client of boto3 has handlers of the program's that block: of events before a request, or after it."""

import contextlib
import ctypes
import functools
import sys

from gevent import monkey

monkey.patch_all()

import boto3
import gevent
from botocore.config import Config
from botocore.exceptions import BotoCoreError

KEYS = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "eu-west-1"}
CLIENT = boto3.client(
    "s3",
    endpoint_url="https://localhost:9",  # nothing listens there
    config=Config(max_pool_connections=20, retries={"max_attempts": 0}),
    **KEYS,
)


def block(**_):
    ctypes.CDLL(None).usleep(200000)  # <- where


def count(**_):
    pass


class Signer:
    def sign(self, **given):
        block(**given)


HANDLERS = {
    "none": (),
    "before-send": (("before-send.s3", block),),
    "request-created": (("request-created", functools.partial(Signer().sign, key=1)),),
    "both": (("request-created.s3.*", count), ("before-send.s3.GetObject", block)),
    "another operation": (("before-send.s3.PutObject", block), ("after-call.sqs", block)),
    "after-call": (("request-created", count), ("after-call.s3.GetObject", block)),
}


def fetch_object(number):
    with contextlib.suppress(BotoCoreError):
        CLIENT.get_object(Bucket="b", Key=str(number))


if __name__ == "__main__":
    for event, handler in HANDLERS[sys.argv[1]]:
        CLIENT.meta.events.register(event, handler)
    gevent.joinall([gevent.spawn(fetch_object, number) for number in range(12)])


PACKAGES = ["gevent", "boto3"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "none",
        "COMMAND": ["python", "handlers_of_botocore.py", "none"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "before-send",
        "COMMAND": ["python", "handlers_of_botocore.py", "before-send"],
        "EXPECT": {"verdict": "serialized", "cause": "blocking-call"},
    },
    {
        "name": "request-created",
        "COMMAND": ["python", "handlers_of_botocore.py", "request-created"],
        "EXPECT": {"verdict": "serialized", "cause": "blocking-call"},
    },
    {
        "name": "both",
        "COMMAND": ["python", "handlers_of_botocore.py", "both"],
        "EXPECT": {"verdict": "serialized", "cause": "blocking-call"},
    },
    {
        "name": "another operation",
        "COMMAND": ["python", "handlers_of_botocore.py", "another operation"],
        "EXPECT": {"verdict": "concurrent"},
    },
    {
        "name": "after-call",
        "COMMAND": ["python", "handlers_of_botocore.py", "after-call"],
        "EXPECT": {"verdict": "none", "error": "*handler of after-call at handlers_of_botocore.py:26, *"},
    },
]
