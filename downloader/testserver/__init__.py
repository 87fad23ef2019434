"""A fast file server for the demo, tests and benchmarks; it can inject faults to test clients.

Nothing on the path of a download imports it.
"""
