"""Our own correction of pyOpenSSL, then grequests: stage 04 as it should be. Old requests injects."""

import waiting_openssl

waiting_openssl.patch()

import grequests
