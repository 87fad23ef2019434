"""The state of a job in its destination: lock, journal, ledgers, names, and verification of the files.

``sinks`` stores the files themselves.
"""
