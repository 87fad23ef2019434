"""Processes: started isolated, forked, patched before anything else, and how they talk to each other.

What a child does is its room's: ``worker`` or ``feeder``.
"""
