"""What runs a whole job: the supervisor's process, which forks, leases, watches and reaps.

It imports neither gevent nor ssl, and does nothing for each file: what is per file belongs to ``worker``.
"""
