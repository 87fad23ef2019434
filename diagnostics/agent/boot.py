"""Run by path with ``-S``: the recording begins before ``site``, so before ``.pth`` and sitecustomize."""

import sys


def _reach_library():
    # type: () -> None
    """A virtualenv of Python 2 finds the standard library in its ``site``, which comes later here."""
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
        # The interpreter looked for it in vain when it started; importing it registers the codecs.
        __import__("encodings")


_PATH = list(sys.path)
if sys.version_info[0] == 2:
    _reach_library()

import os  # noqa: E402


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
    sys.path[:] = [folder for folder in _PATH if os.path.abspath(folder or ".") != here]
    import site

    if sys.version_info[0] > 2:
        # Python 2 has run all of it when it imports the module.
        life.remedies.before_pth_files(site)
        site.main()
    if "app" in spec["target"]:
        # As with `python -m`: the current directory comes first.
        sys.path.insert(0, os.getcwd())
    sys.argv[:] = [""]
    agent.run_told()


_main()
