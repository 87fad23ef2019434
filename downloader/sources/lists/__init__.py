"""Lists of files: their formats, their columns, and how several files are one list.

A module ``rows_FORMAT`` reads one format: it turns lines, or batches of a binary file, into a ``Table``
(``rows``). What a row means is decided in ``columns`` and ``items``, the same for all formats.
"""
