"""Take the place of the standard library's ``encodings``, and then become it.

Python imports this package before any other, and so before all ``.pth`` files. It is on ``PYTHONPATH`` only
where a remedy in a ``.pth`` file is measured.
"""

import sys


def _real(ours):
    # type: (str) -> str
    """Return the folder of the standard library's package."""
    import _io

    for folder in sys.path:
        if folder != ours:
            try:
                _io.FileIO(folder + "/encodings/__init__.py").close()
            except (IOError, OSError):
                continue
            return folder + "/encodings"
    raise ImportError("the standard library's encodings were not found")


def _become(told):
    # type: (dict[str, object]) -> None
    import _io

    ours = __file__.rpartition("/encodings/")[0]
    folder = _real(ours)
    while ours in sys.path:
        sys.path.remove(ours)
    told["__file__"] = folder + "/__init__.py"
    told["__path__"] = [folder]
    spec = told.get("__spec__")
    if spec is not None:
        spec.origin = told["__file__"]  # type: ignore[attr-defined]
        spec.submodule_search_locations = told["__path__"]  # type: ignore[attr-defined]
    with _io.FileIO(folder + "/__init__.py") as source:
        code = compile(source.readall(), folder + "/__init__.py", "exec")
    if "site" not in sys.modules:  # in Python 2, it has already read all .pth files
        sys.setprofile(_look)
    exec(code, told)  # noqa: S102


def _look(frame, event, arg):
    # type: (object, str, object) -> None
    """Wait for the functions of ``site`` around its ``.pth`` files; the profiler function.

    They are those of ``remedies.AT_PTH_FILES``.
    """
    code = frame.f_code  # type: ignore[attr-defined]
    name = code.co_name
    if event != "call" or name not in ("addsitedir", "addpackage", "execsitecustomize"):
        return
    if "site" not in code.co_filename:
        return
    sys.setprofile(None)
    from https_agent import early  # type: ignore[import-not-found]

    if not early.carry_out(name, frame.f_locals):  # type: ignore[attr-defined]
        sys.setprofile(_look)


_become(globals())
