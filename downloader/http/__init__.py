"""How a file is fetched over HTTP: the session, its connections, the requests client, the pipelined client.

Every module here is imported in a patched process only. What an outcome means for the job belongs to
``worker`` and ``core``.
"""
