"""A fast file server for the demo, tests and benchmarks, which can inject faults, to test clients.

No module that takes part in a download imports it.
"""
