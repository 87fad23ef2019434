"""Replace a function by one that looks and behaves the same, and records its calls.

Inspecting the function must give the same result: ``python -m gevent.monkey`` derives its options from the
arguments of ``patch_all``, with ``inspect.getargspec`` on Python 2. So the new function is compiled with
the same parameters.
"""

import sys

from . import harmless

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Callable, Dict, Iterable, List, Optional

    # The frame is None where no Python code calls: uwsgi patches from C.
    Before = Callable[[Optional[FrameType], Dict[str, Any]], None]

_FIELDS = ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__")
_MORE = ("__defaults__", "__kwdefaults__", "__type_params__")
_VARARGS, _KEYWORDS = 4, 8  # flags of a code object
_NAMES = {
    "caller": "_https_agent_caller",
    "before": "_https_agent_before",
    "function": "_https_agent_function",
}


def wrap(owner, name, before, static=False):
    # type: (Any, str, Before, bool) -> None
    """Make ``owner.name`` call ``before(frame of the caller, arguments by name)`` first; wrap it only once.

    What ``before`` raises is no failure of the program, see ``harmless``.
    ``*args`` and ``**kwargs`` are in the arguments under the names that the function gives them.
    """
    function = vars(owner).get(name)
    if isinstance(function, staticmethod):
        function = function.__get__(None, owner)
    if function is None or getattr(function, "_https_agent", False):
        return
    noted = alike(function, before)
    setattr(owner, name, staticmethod(noted) if static else noted)


def replace(owner, name, replacement):
    # type: (Any, str, Callable[[Any], Any]) -> None
    """Put ``replacement(function)`` in the place of ``owner.name``; replace it only once."""
    function = vars(owner).get(name)
    if function is None or getattr(function, "_https_agent", False):
        return
    noted = _pretending(replacement(function), function, _FIELDS)
    for names in (getattr(owner, "supports_fd", None), getattr(owner, "supports_dir_fd", None)):
        if names is not None and function in names:
            names.add(noted)
    setattr(owner, name, noted)


def _pretending(noted, function, fields):
    # type: (Any, Any, Iterable[str]) -> Any
    """Return ``noted`` with the name, the documentation and all else of ``function``."""
    vars(noted).update(vars(function) if hasattr(function, "__dict__") else {})
    for field in fields:
        try:
            setattr(noted, field, getattr(function, field))
        except (AttributeError, TypeError):
            pass
    noted._https_agent = True
    noted.__wrapped__ = function
    return noted


def alike(function, before):
    # type: (Any, Before) -> Any
    """Return a function of the same signature, name and documentation that calls ``before`` first."""
    code = getattr(function, "__code__", None)
    names = list(getattr(code, "co_varnames", ()))
    if code is None or not all(_plain(name) for name in names[: _count(code)]):
        noted = _any_arguments(function, before)
    else:
        told = {
            _NAMES["caller"]: _caller,
            _NAMES["before"]: harmless.made(before),
            _NAMES["function"]: function,
            "__name__": getattr(function, "__module__", __name__),
        }  # type: Dict[str, Any]
        # The file is one of the agent's, so that the frame counts as the agent's.
        exec(compile(_source(code), __file__, "exec"), told)  # noqa: S102
        noted = told["noted"]
    return _pretending(noted, function, _FIELDS + (_MORE if code is not None else ()))


def _caller():
    # type: () -> Optional[FrameType]
    """Return the frame that called the function that calls this one, None if that was no Python code."""
    return sys._getframe(1).f_back


def _count(code):
    # type: (Any) -> int
    """Return the number of parameters; they are the first of the variables."""
    more = bool(code.co_flags & _VARARGS) + bool(code.co_flags & _KEYWORDS)
    return int(code.co_argcount) + int(getattr(code, "co_kwonlyargcount", 0)) + more


def _plain(name):
    # type: (str) -> bool
    """Return whether it is a name, and not a tuple of parameters of Python 2: ``.0``."""
    return name.replace("_", "a").isalnum()


def _source(code):
    # type: (Any) -> str
    names = list(code.co_varnames)
    only = getattr(code, "co_kwonlyargcount", 0)
    plain, keyword = names[: code.co_argcount], names[code.co_argcount : code.co_argcount + only]
    rest = names[code.co_argcount + only :]
    parameters, passed = list(plain), list(plain)
    if getattr(code, "co_posonlyargcount", 0):
        parameters.insert(code.co_posonlyargcount, "/")
    if code.co_flags & _VARARGS:
        parameters.append("*" + rest[0])
        passed.append("*" + rest.pop(0))
    elif keyword:
        parameters.append("*")
    parameters += keyword
    passed += ["%s=%s" % (name, name) for name in keyword]
    if code.co_flags & _KEYWORDS:
        parameters.append("**" + rest[0])
        passed.append("**" + rest[0])
    by_name = ", ".join("%r: %s" % (name, name) for name in names[: _count(code)])
    return "def noted({0}):\n    {before}({caller}(), {{{1}}})\n    return {function}({2})\n".format(
        ", ".join(parameters), by_name, ", ".join(passed), **_NAMES
    )


def _any_arguments(function, before):
    # type: (Any, Before) -> Any
    """Return the same for a function that is not written in Python; ``inspect`` follows ``__wrapped__``."""

    before = harmless.made(before)

    def noted(*args, **kwargs):
        # type: (*Any, **Any) -> Any
        before(_caller(), dict(kwargs, args=args))
        return function(*args, **kwargs)

    return noted


def differing(function, arguments):
    # type: (Any, Dict[str, Any]) -> Dict[str, Any]
    """Return those of ``arguments`` that are not the defaults of ``function``, in the order of the
    parameters."""
    code = function.__code__
    names = list(code.co_varnames[: _count(code)])
    plain = names[: code.co_argcount]
    defaults = dict(getattr(function, "__kwdefaults__", None) or {})
    given = function.__defaults__ or ()
    defaults.update(zip(plain[len(plain) - len(given) :], given))  # noqa: B905
    told = {}  # type: Dict[str, Any]
    for name in names:
        value = arguments[name]
        if code.co_flags & _KEYWORDS and name == names[-1]:
            told.update(value)
        elif not (name in defaults and defaults[name] is value) and value != ():
            told[name] = value
    return told
