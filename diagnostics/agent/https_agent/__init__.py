"""The agent: records how a process comes about, then measures HTTPS in it.

Runs on Python 2.7 and from 3.6, so the syntax is what these have in common. It must not change what it
observes: nothing here imports ``ssl``, ``socket``, ``threading`` or anything that does, before the
application has.
"""
