"""The file server of the task, fast, over HTTP and HTTPS: for the demo, the tests, the benchmarks.

``settings.Settings`` says what is served, ``server.serve`` serves it until SIGTERM or SIGINT. This
package, ``settings`` and ``content`` import neither ssl nor asyncio; ``server`` imports both, so it
is imported only in the process that serves.
"""
