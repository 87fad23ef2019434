"""Contain what runs in the process under check: standard library only, Python 2.7 and from 3.6.

This folder is put first on ``PYTHONPATH`` (``sitecustomize`` here starts the recording), or ``boot`` is run
by its path. Both import the package ``https_agent``.
"""
