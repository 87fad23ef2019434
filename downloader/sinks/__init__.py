"""The outputs that files are stored in: a module for each kind, the registry, the interfaces (``sink``).

A sink publishes a file completely or not at all, and never silently replaces one item by another.
``storage`` records what is known about the stored files.
"""
