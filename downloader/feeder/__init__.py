"""The feeder's process: reads the source page by page and sends batches of items.

How a source is read belongs to ``sources``.
"""
