"""Start the recording in a command's interpreter, which finds this module through ``PYTHONPATH``."""

import os
import sys


def _begin():
    # type: () -> None
    from https_agent import children, entrance, life  # type: ignore[import-not-found]

    spec = life.read_spec()
    # No module of the agent may be importable by name in the application.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    entrance.restore(os.environ)
    ours = sys.modules.pop("sitecustomize", None)
    if getattr(sys.getprofile(), "__module__", None) == "encodings":
        sys.setprofile(None)  # a remedy still waits for a .pth file, but all have been read
    agent = None
    if spec is not None:
        children.keep(spec)
    if spec is not None and spec["mode"] == "watch":
        from https_agent import watch

        watch.begin(spec)
    elif spec is not None:
        agent = life.begin(spec)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # the application's, which this one hides
    except ImportError as error:
        if "sitecustomize" not in str(error):
            raise
    if ours is not None:
        sys.modules.setdefault("sitecustomize", ours)
    if agent is not None:
        agent.wait_in_command()


_begin()
