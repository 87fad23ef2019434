"""pyOpenSSL is merely installed: requests up to 2.23.0 injects it, 2.24.0 no longer does."""

import grequests  # noqa: F401

PYTHONS = ["3.11", "3.10", "3.9", "3.8"]
RUNS = [
    {
        "name": "requests 2.23.0",
        "PACKAGES": ["requests==2.23.0", "grequests==0.7.0", "pyOpenSSL==21.0.0", "cryptography==3.4.8"],
        "EXPECT": {
            "verdict": "serialized",
            "cause": "pyopenssl-unpatched-select",
            "where": "requests/__init__.py:*",
        },
    },
    {
        "name": "requests 2.24.0",
        "PACKAGES": ["requests==2.24.0", "grequests==0.7.0", "pyOpenSSL==21.0.0", "cryptography==3.4.8"],
        "EXPECT": {"verdict": "concurrent"},
    },
]
