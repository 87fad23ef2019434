"""An agent that reports to a server: it takes requests with it into every Python of this machine."""

import requests  # noqa: F401
