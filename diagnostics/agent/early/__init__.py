"""Carries out a remedy in front of a command's ``.pth`` files, which run before ``sitecustomize``."""
