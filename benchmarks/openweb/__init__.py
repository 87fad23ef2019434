"""Serve a small open web on loopback: thousands of host names, some of them dead, and their DNS server.

What belongs here: the names and what they do, the DNS server, the list of URLs, the web server's
configuration, the mount namespace in which a client resolves names. Clients, cells, rounds and results are
those of the rest of the suite.
"""
