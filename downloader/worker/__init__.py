"""The worker's process: takes leased batches, has their items fetched and stored, and reports.

How a file is fetched belongs to ``http``, how it is stored to ``sinks``, which file is next to
``core.scheduler``.
"""
