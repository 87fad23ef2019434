"""grequests, and pyOpenSSL injected into urllib3."""

import grequests
import urllib3.contrib.pyopenssl

urllib3.contrib.pyopenssl.inject_into_urllib3()
