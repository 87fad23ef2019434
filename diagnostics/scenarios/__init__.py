"""Every known trap, one small application each, for Python 2.7 and from 3.6; see ``diagnostics.scenario``.

The folder is the current directory of the process under check, so the applications import each other's
names from nowhere, and nothing here is imported by the diagnostics themselves.
"""
