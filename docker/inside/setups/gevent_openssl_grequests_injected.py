"""gevent-openssl's patch, then grequests, and pyOpenSSL injected into urllib3."""

import gevent_openssl

gevent_openssl.monkey_patch()

import grequests
import urllib3.contrib.pyopenssl

urllib3.contrib.pyopenssl.inject_into_urllib3()
