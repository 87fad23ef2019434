"""Output for persons and programs: progress on stderr, the report, messages without secrets.

It makes no decisions about the job.
"""
