"""The worker's process: takes leased batches, has their items fetched and stored, and reports.

How to fetch a file belongs to ``http``, how to store it to ``sinks``, which file is next to
``core.scheduler``.
"""
