"""Measure whether HTTPS is concurrent under gevent, for combinations of Python, packages and set-up."""
