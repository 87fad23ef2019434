"""Where items come from: one module for each kind of source, a registry, and what a source is (``source``).

A source lives in the feeder. It yields pages lazily, each with the cursor behind it, and can make the
items of an earlier page again. It fetches only through the ``Fetch`` that it is given.
"""
