"""Our own correction of pyOpenSSL, then grequests, and pyOpenSSL injected into urllib3."""

import waiting_openssl

waiting_openssl.patch()

import grequests
import urllib3.contrib.pyopenssl

urllib3.contrib.pyopenssl.inject_into_urllib3()
