"""The command line: makes a Config of argv and the environment, and one line and an exit code of errors.

Nothing here fetches or stores. Programs call ``downloader.api``.
"""
