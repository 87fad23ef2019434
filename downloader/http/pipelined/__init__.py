"""The pipelined client: several requests in flight on one connection, for small plain files.

Files that it cannot store are left to the requests client.
"""
