"""requests imported, then all patched: too late."""

import requests
from gevent import monkey

monkey.patch_all()
