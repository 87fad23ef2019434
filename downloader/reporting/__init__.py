"""What a person or a program is told: progress on stderr, the report, messages without secrets.

It decides nothing about the job.
"""
