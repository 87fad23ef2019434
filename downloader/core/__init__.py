"""Decisions, as pure code: no socket, no file, no clock, no gevent, no requests.

What must be known for a decision is given to it; tests walk its tables.
"""
