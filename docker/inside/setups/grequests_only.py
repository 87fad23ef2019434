"""``import grequests``, which patches all but ``thread`` and ``select``."""

import grequests
