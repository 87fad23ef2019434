"""The pipelined client: several requests in flight on one connection, for small plain files.

What it does not store it hands over to the requests client.
"""
