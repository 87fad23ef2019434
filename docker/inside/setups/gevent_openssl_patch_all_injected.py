"""All patched, gevent-openssl's patch, and pyOpenSSL injected into urllib3."""

from gevent import monkey

monkey.patch_all()

import gevent_openssl

gevent_openssl.monkey_patch()

import urllib3.contrib.pyopenssl

urllib3.contrib.pyopenssl.inject_into_urllib3()
import requests
