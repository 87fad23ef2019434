"""Execute a remedy before a command's ``.pth`` files, which run before ``sitecustomize``."""
