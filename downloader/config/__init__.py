"""The Config of a run, validated, and the kinds of sources and sinks that it can name.

Nothing here reads argv or the environment: that belongs to ``cli``. Only what ``--cacert system`` means
depends on two variables of OpenSSL.
"""
