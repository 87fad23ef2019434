"""The engine ``ray``: a job over many machines. A plan of slices on storage that all nodes see, a driver
that has the slices run, and what runs on the nodes. Each slice is an ordinary run of ``engine``. What
decides is pure and in ``core.slices``. Ray is imported in functions of ``fleet`` and ``task`` only, in
processes that are not patched and fork no workers.
"""
