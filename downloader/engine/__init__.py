"""The engine runs a whole job: the supervisor's process, which forks, leases, watches and reaps.

It imports neither gevent nor ssl, and does no work per file, which belongs to ``worker``.
"""
