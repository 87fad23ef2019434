"""Begins the recording in a command's interpreter, which finds this through ``PYTHONPATH``."""

import os
import sys


def _begin():
    # type: () -> None
    from https_agent import life  # type: ignore[import-not-found]

    spec = life.read_spec()
    # Nothing of ours may be importable by name in the application.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    ours = sys.modules.pop("sitecustomize", None)
    if getattr(sys.getprofile(), "__module__", None) == "encodings":
        sys.setprofile(None)  # the remedy that waits for a .pth file, of which there is none any more
    agent = None
    if spec is not None and spec["mode"] == "watch":
        from https_agent import watch

        watch.begin(spec)
    elif spec is not None:
        agent = life.begin(spec)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # the one that ours hides
    except ImportError as error:
        if "sitecustomize" not in str(error):
            raise
    if ours is not None:
        sys.modules.setdefault("sitecustomize", ours)
    if agent is not None:
        agent.wait_in_command()


_begin()
