"""Pure decision code: no sockets, no files, no clock, no gevent, no requests.

Callers pass in everything that a decision depends on, so tests can check each table completely.
"""
