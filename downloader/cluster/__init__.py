"""The engine ``ray``: a job over many machines, in three rooms. ``driver`` plans and watches, ``node`` runs
a slice, ``plan`` is what both read; imports go down only, in this order. Each slice is an ordinary run of
``engine``. What decides is pure and in ``core.slices``.
"""
