"""A program whose only client is aiohttp names no fetch: another client is measured, which says nothing."""

from gevent import monkey

monkey.patch_all()

import aiohttp  # <- where

PACKAGES = ["gevent", "aiohttp"]
PYTHONS = ["3"]
EXPECT = {"verdict": "error", "cause": "foreign-client"}
