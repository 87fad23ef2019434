"""What a destination knows of its job: lock, journal, ledgers, names, and whether the files agree.

Bodies are stored by ``sinks``.
"""
