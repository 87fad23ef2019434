"""Start the recording before ``site`` runs, and so before ``.pth`` files and sitecustomize.

Run by its path, with ``-S``.
"""

import sys


def _reach_library():
    # type: () -> None
    """Add the standard library to the path: in a virtualenv of Python 2, ``site`` would do so, later."""
    version = "/lib/python%d.%d" % sys.version_info[:2]
    base = ""
    for name in (sys.prefix + "/pyvenv.cfg", sys.prefix + version + "/orig-prefix.txt"):
        try:
            with open(name) as lines:
                told = [line.split("=") for line in lines]
        except IOError:
            continue
        found = [each[-1].strip() for each in told if len(each) == 1 or each[0].strip() == "base-prefix"]
        base = base or (found[0] if found else "")
    if base:
        mapped = [base + folder[len(sys.prefix) :] for folder in sys.path if folder.startswith(sys.prefix)]
        sys.path[:0] = mapped
        # The interpreter did not find it when it started; importing it registers the codecs.
        __import__("encodings")


_PATH = list(sys.path)
if sys.version_info[0] == 2:
    _reach_library()

import os


def _main():
    # type: () -> None
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != here]
    sys.path.insert(0, here)
    from https_agent import life  # type: ignore[import-not-found]

    spec = life.read_spec()
    if spec is None:
        raise SystemExit("this is started by: python -m diagnostics")
    agent = life.begin(spec)
    if "startup" not in spec["target"]:
        agent.answer_in_set_up()
    sys.path[:] = [folder for folder in _PATH if os.path.abspath(folder or ".") != here]
    import site

    if sys.version_info[0] > 2:
        # In Python 2, importing the module has already run all of it.
        life.remedies.before_pth_files(site)
        site.main()
    if spec["target"].get("path"):
        # That of the program that checks itself: a PEX, say, has made it.
        sys.path[:] = spec["target"]["path"]
    if "app" in spec["target"]:
        # As with `python -m`: the current directory comes first.
        sys.path.insert(0, os.getcwd())
    sys.argv[:] = [""]
    agent.run_told()


_main()
