"""Decide how a Python that is about to be started comes to have the agent, and why one does not. Pure.

The agent enters through two environment variables: one names the controller's instructions, and
``PYTHONPATH`` begins with the agent's folder. Programs lose both: they start others with an environment of
their own, or put a folder in front. Options of the interpreter ignore them. So argv and environment are
corrected each time that something is executed (``children``), and where the controller starts what was
started without the agent (``diagnostics.missed``).
"""

import json
import os
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

    class Entrance(NamedTuple):
        spec: str
        path: List[str]
        more: Dict[str, str]

else:
    from collections import namedtuple

    Entrance = namedtuple("Entrance", "spec path more")
    Entrance.__doc__ = """What the agent needs in an environment.

    ``spec``: the file with the instructions; ``path``: what ``PYTHONPATH`` begins with; ``more``: further
    variables, for those that have them not.
    """

VARIABLE = "HTTPS_DIAGNOSTICS"
# The variables that an option let the interpreter ignore; the agent puts them back.
IGNORED = "HTTPS_DIAGNOSTICS_IGNORED"
_PATH = "PYTHONPATH"
# What -I implies besides -E. Only from Python 3.11 on a variable can replace its other part.
_ISOLATED = ("PYTHONNOUSERSITE", "PYTHONSAFEPATH")
_PYTHON = re.compile(r"^(python|pypy)[0-9.]*[a-z]{0,2}(-dbg|-debug)?$")
_WITH_VALUE = "WXQ"
_LAST = "cm"  # what follows belongs to the program


def is_python(name):
    # type: (str) -> bool
    """Return whether a file of this name is a Python."""
    return bool(_PYTHON.match(os.path.basename(name)))


def options(argv):
    # type: (Sequence[str]) -> List[Tuple[int, str]]
    """Return the interpreter's own options without a value, each with its position in ``argv``."""
    found = []  # type: List[Tuple[int, str]]
    number = 1
    while number < len(argv):
        word = argv[number]
        if word in ("-", "--") or not word.startswith("-"):
            break
        if word.startswith("--"):
            number += 2 if word == "--check-hash-based-pycs" else 1
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter in _LAST:
                return found
            if letter in _WITH_VALUE:
                number += place == len(word)
                break
            found.append((number, letter))
        number += 1
    return found


def _without(argv, letters):
    # type: (Sequence[str], str) -> List[str]
    """Return ``argv`` without these options of the interpreter."""
    found = list(argv)
    for number, letter in reversed(options(argv)):
        if letter in letters:
            # Options with a value come last in a word, and no letter precedes its own value.
            found[number] = "-" + found[number][1:].replace(letter, "", 1)
            if found[number] == "-":
                del found[number]
    return found


def entered(argv, environ, entrance, python):
    # type: (Sequence[str], Dict[str, str], Entrance, bool) -> Tuple[List[str], Dict[str, str]]
    """Return ``argv`` and ``environ`` such that what is started has the agent.

    ``python``: it is a Python, so its options count. What ``-I`` and ``-E`` keep from it, it does not get
    in another way.
    """
    env = dict(environ)
    letters = "".join(letter for _, letter in options(argv)) if python else ""
    if "I" in letters or "E" in letters:
        argv = _without(argv, "IE")
        ignored = dict((name, env.pop(name)) for name in list(env) if name.startswith("PYTHON"))
        env[IGNORED] = json.dumps(ignored)
        if "I" in letters:
            env.update(dict.fromkeys(_ISOLATED, "1"))
    for name, value in entrance.more.items():
        env.setdefault(name, value)
    env[VARIABLE] = entrance.spec
    env[_PATH] = _in_front(entrance.path, env.get(_PATH))
    return list(argv), env


def _in_front(folders, path):
    # type: (Sequence[str], str | None) -> str
    # An empty entry is the current directory, so it stays.
    rest = [each for each in path.split(os.pathsep) if each not in folders] if path else []
    return os.pathsep.join(list(folders) + rest)


def restore(environ):
    # type: (Dict[str, str]) -> None
    """Put back what an option let this interpreter ignore: its children without that option heed it."""
    text = environ.pop(IGNORED, None)
    if text is None:
        return
    for name in _ISOLATED:
        environ.pop(name, None)
    ours = environ.get(_PATH, "").split(os.pathsep)
    ignored = dict((_native(name), _native(value)) for name, value in json.loads(text).items())
    environ.update(ignored)
    if _PATH in ignored:
        environ[_PATH] = _in_front(ours, ignored[_PATH])


def _native(text):
    # type: (Any) -> str
    """Return ``text``, which was read from JSON, as a ``str`` of Python 2, too."""
    return text if isinstance(text, str) else text.encode("utf-8")


def refusal(argv, environ, entrance, customized=()):
    # type: (Sequence[str], Dict[str, str], Entrance, Iterable[str]) -> str
    """Return why a Python that was started so has no agent; "" if it has.

    ``customized``: the folders, of those that ``PYTHONPATH`` names, that have a ``sitecustomize``.
    """
    letters = [letter for _, letter in options(argv)]
    for letter in "SIE":
        if letter in letters:
            return {
                "S": "-S leaves out site, through which the diagnostics come in",
                "I": "-I ignores PYTHONPATH",
                "E": "-E ignores PYTHONPATH",
            }[letter]
    path = environ.get(_PATH)
    entries = path.split(os.pathsep) if path else []
    if environ.get(VARIABLE) != entrance.spec and not entries:
        return "it was started with an environment that was emptied"
    ours = entrance.path[-1]
    if ours not in entries:
        return "PYTHONPATH was set to %s" % path if path else "PYTHONPATH was unset"
    before = entries[: entries.index(ours)]
    for folder in customized:
        if folder in before:
            return "PYTHONPATH has another sitecustomize in front, in %s" % folder
    if environ.get(VARIABLE) != entrance.spec:
        return "the variable %s was removed" % VARIABLE
    return ""
