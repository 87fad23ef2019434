"""Run by path with ``-S``: the recording begins before ``site``, so before ``.pth`` and sitecustomize."""

import os
import sys


def _main():
    # type: () -> None
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    sys.path.insert(0, here)
    from https_agent import life  # type: ignore[import-not-found]

    spec = life.read_spec()
    if spec is None:
        raise SystemExit("this is started by: python -m diagnostics")
    sys.path.remove(here)
    agent = life.begin(spec)
    import site

    if sys.version_info[0] > 2:
        site.main()
    # As with `python -m`: the current directory comes first.
    sys.path.insert(0, os.getcwd())
    sys.argv[:] = [""]
    agent.run_told()


_main()
