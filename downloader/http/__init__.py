"""Fetch files over HTTP: the session, its connections, the requests client and the pipelined client.

These modules are imported only in a process that gevent has patched. ``worker`` and ``core`` decide what
an outcome means for the job.
"""
