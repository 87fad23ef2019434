"""Publish whole parts as shards, in a process that is not patched: one for each worker.

``client`` is the worker's half. Everything else runs in the publisher's process (``process``), which may
import pyarrow and obstore; the worker must not, because of their memory and threads.
"""

from downloader.sinks.shards.publisher.client import Publisher

__all__ = ["Publisher"]
