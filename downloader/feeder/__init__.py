"""The feeder's process: reads the source page by page and sends batches of items.

How to read a source belongs to ``sources``.
"""
