"""gevent-openssl's patch, then grequests: stage 03 of the story. Old requests injects by itself."""

import gevent_openssl

gevent_openssl.monkey_patch()

import grequests
