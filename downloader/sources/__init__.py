"""The sources of items: modules for each kind of source, a registry, and the interfaces (``source``).

A source runs in the feeder. It yields pages lazily, each with the cursor after it, and can recreate the
items of an earlier page. It fetches only through the ``Fetch`` that it is given.
"""
