"""Processes: isolation, forking, patching before anything else, and the messages between them.

What a child does belongs to ``worker`` or ``feeder``.
"""
