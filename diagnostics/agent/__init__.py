"""What is sent into the process under check: standard library only, Python 2.7 and from 3.6.

This folder goes to the front of ``PYTHONPATH`` (``sitecustomize`` here begins the recording), or
``boot`` is run by path. What is imported in there is the package ``https_agent``.
"""
