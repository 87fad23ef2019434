"""The command line: argv and environment become a Config, errors become one line and an exit code.

Nothing here fetches or stores. What a program calls is ``downloader.api``.
"""
