"""An administrator's idea: pyOpenSSL for every Python of this machine."""

from urllib3.contrib import pyopenssl

pyopenssl.inject_into_urllib3()
