"""Where files are stored: one module for each kind of output, the registry, and what a sink is (``sink``).

A sink makes a name appear whole or not at all, and never puts one item over another in silence. What is
known about the stored files belongs to ``storage``.
"""
