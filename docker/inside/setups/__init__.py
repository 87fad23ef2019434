"""How a process gets ready for HTTPS under gevent: importing one of these modules does it.

Nothing else is in them, so that they can also be named to the diagnostics, as an application.
"""
