"""Record how a process is set up, then measure HTTPS in it: the agent.

It runs on Python 2.7 and from 3.6, so only the syntax that these have in common is used. It must not change
what it observes: nothing here imports ``ssl``, ``socket``, ``threading``, or anything that imports these,
before the application has.
"""
