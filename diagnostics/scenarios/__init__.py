"""Contain every known trap as a small application, for Python 2.7 and from 3.6.

See ``diagnostics.scenario``. The folder is the current directory of the process under check. The
applications do not import each other, and the diagnostics import nothing from here.

A file whose name begins with an underscore is no scenario.
"""
