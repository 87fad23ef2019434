"""A program that is given to python -c: the cause is its statement."""

PACKAGES = ["gevent", "requests"]
PYTHONS = ["3"]
RUNS = [
    {
        "name": "in one line",
        "COMMAND": [
            "python",
            "-c",
            "import json; import requests; from gevent import monkey; monkey.patch_all()",
        ],
        "EXPECT": {
            "verdict": "error",
            "cause": "patched-too-late",
            "where": "python -c, line 1: import requests",
        },
    },
    {
        "name": "in several",
        "COMMAND": ["python", "-c", "import gevent\n\ngevent.sleep(0)\nimport requests"],
        "EXPECT": {
            "verdict": "serialized",
            "cause": "not-patched",
            "where": "python -c, line 1: import gevent",
        },
    },
    {
        "name": "healthy",
        "COMMAND": ["python", "-c", "from gevent import monkey; monkey.patch_all(); import requests"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
