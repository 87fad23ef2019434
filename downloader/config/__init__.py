"""What a run is told: the Config, checked, and the kinds of sources that it can name.

Nothing here reads argv or the environment: that is ``cli``.
"""
