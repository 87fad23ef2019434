"""Reports of a check for others than the terminal: workflow commands, JUnit XML, a page for people.

Each module makes one of them from an ``Outcome``; ``files`` checks and writes those that are files. What is
decided (verdict, causes, remedies) belongs to the package above; what is printed to ``diagnostics.report``.
"""
