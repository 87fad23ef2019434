"""The matrix: is HTTPS concurrent under gevent, on which Python, with which packages, set up how?"""
