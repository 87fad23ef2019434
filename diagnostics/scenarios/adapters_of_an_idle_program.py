"""A session that has fetched nothing yet has several adapters: which of them is used has not been seen."""

import sys

from gevent import monkey

monkey.patch_all()

import requests
from requests.adapters import HTTPAdapter

api = requests.Session()
if sys.argv[1] == "narrow":
    api.mount("https://old.example/", HTTPAdapter(pool_maxsize=1, pool_block=True))
else:
    api.mount("https://cdn.example/", HTTPAdapter(pool_maxsize=50))


PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "narrow",
        "COMMAND": ["python", "adapters_of_an_idle_program.py", "narrow"],
        "EXPECT": {
            "verdict": "none",
            "error": "*adapter at https://old.example/ HTTPS is serialized*at https:// it is concurrent*",
        },
    },
    {
        "name": "wide",
        "COMMAND": ["python", "adapters_of_an_idle_program.py", "wide"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
