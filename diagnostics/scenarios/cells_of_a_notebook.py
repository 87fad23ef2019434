"""A notebook, executed: the cause is a line of a cell."""

import sys

_PATCH = "from gevent import monkey\n\nmonkey.patch_all(thread=False)"
_FETCH = """\
import gevent

def fetch():
    try:
        requests.get("https://localhost:9/", timeout=5)
    except (OSError, RecursionError):
        pass

gevent.joinall([gevent.spawn(fetch) for _ in range(3)])
"""
_CELLS = {
    "late": ["import json\nimport requests", _PATCH, _FETCH],
    "unpatched": ["answer = 42", "import json\nimport requests", _FETCH],
    "patched": [_PATCH, "import requests", _FETCH],
}

if __name__ == "__main__":
    import nbformat
    from nbclient import NotebookClient

    _cells = [nbformat.v4.new_code_cell(text) for text in _CELLS[sys.argv[1]]]
    NotebookClient(nbformat.v4.new_notebook(cells=_cells), kernel_name="python3").execute()

PACKAGES = ["gevent", "requests", "ipykernel", "nbclient"]
PYTHONS = ["3.11", "3.12", "3.13", "3.14", "3.10"]
RUNS = [
    {
        "name": "late",
        "COMMAND": ["python", "cells_of_a_notebook.py", "late"],
        "EXPECT": {
            "verdict": "error",
            "cause": "patched-too-late",
            "where": "In ?1?, line 2: import requests",
        },
    },
    {
        "name": "unpatched",
        "COMMAND": ["python", "cells_of_a_notebook.py", "unpatched"],
        "EXPECT": {
            "verdict": "serialized",
            "cause": "not-patched",
            "where": "In ?2?, line 2: import requests",
        },
    },
    {
        "name": "healthy",
        "COMMAND": ["python", "cells_of_a_notebook.py", "patched"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
