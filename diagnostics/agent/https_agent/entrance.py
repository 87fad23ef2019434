"""Decide how a Python that is about to be started comes to have the agent, and why one does not.

The agent enters through two environment variables: one names the controller's instructions, and
``PYTHONPATH`` begins with the agent's folder. Programs lose both: they start others with an environment of
their own, or put a folder in front. Options of the interpreter ignore them. So argv and environment are
corrected each time that something is executed (``children``), and where the controller starts what was
started without the agent (``diagnostics.missed``).
"""

import json
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

VARIABLE = "HTTPS_DIAGNOSTICS"
# The variables that an option let the interpreter ignore; the agent puts them back.
IGNORED = "HTTPS_DIAGNOSTICS_IGNORED"
_PATH = "PYTHONPATH"
# What -I implies besides -E. Only from Python 3.11 on a variable can replace its other part.
_ISOLATED = ("PYTHONNOUSERSITE", "PYTHONSAFEPATH")
_PYTHON = re.compile(r"^(python|pypy)[0-9.]*[a-z]{0,2}(-dbg|-debug)?$")
_WITH_VALUE = "WXQ"
_LAST = "cm"  # what follows belongs to the program


class Entrance(object):
    """What the agent needs in an environment.

    ``spec``: the file with the instructions; ``path``: what ``PYTHONPATH`` begins with; ``more``: further
    variables, for those that have them not.
    """

    def __init__(self, spec, path, more):
        # type: (str, List[str], Dict[str, str]) -> None
        self.spec = spec
        self.path = path
        self.more = more


def is_python(name):
    # type: (str) -> bool
    """Return whether a file of this name is a Python."""
    return bool(_PYTHON.match(os.path.basename(name)))


def options(argv):
    # type: (Sequence[str]) -> List[Tuple[int, str]]
    """Return the interpreter's own options without a value, each with its position in ``argv``."""
    return _parsed(argv)[0]


def reads_program(argv):
    # type: (Sequence[str]) -> bool
    """Return whether a Python that was started so reads the program from its standard input."""
    return _parsed(argv)[1] in ("", "-")


def _parsed(argv):
    # type: (Sequence[str]) -> Tuple[List[Tuple[int, str]], str]
    """Return the options as above, and what follows them: a file, ``-c``, ``-m``, ``-``; "" if nothing."""
    found = []  # type: List[Tuple[int, str]]
    number = 1
    while number < len(argv):
        word = argv[number]
        if word == "--":
            number += 1
            break
        if word == "-" or not word.startswith("-"):
            break
        if word.startswith("--"):
            number += 2 if word == "--check-hash-based-pycs" else 1
            continue
        for place, letter in enumerate(word[1:], 2):
            if letter in _LAST:
                return found, "-" + letter
            if letter in _WITH_VALUE:
                number += place == len(word)
                break
            found.append((number, letter))
        number += 1
    return found, argv[number] if number < len(argv) else ""


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
    in another way. What has the instructions of another controller, as of a check within a watch, is its.
    """
    env = dict(environ)
    if env.get(VARIABLE) not in (None, entrance.spec):
        return list(argv), env
    ignoring = [number for number, letter in options(argv) if letter in "IE"] if python else []
    if ignoring:
        isolated = any(letter == "I" for _, letter in options(argv))
        before, argv = list(argv), _without(argv, "IE")
        variables = dict((name, env.pop(name)) for name in list(env) if name.startswith("PYTHON"))
        words = before[1 : ignoring[-1] + 1]
        dropped = {"isolated": isolated, "words": words, "left": len(words) - len(before) + len(argv)}
        env[IGNORED] = json.dumps(dict(dropped, variables=variables))
        if isolated:
            env.update(dict.fromkeys(_ISOLATED, "1"))
    for name, value in entrance.more.items():
        env.setdefault(name, value)
    env[VARIABLE] = entrance.spec
    env[_PATH] = _in_front(entrance.path, env.get(_PATH))
    return list(argv), env


def _in_front(folders, path):
    # type: (Sequence[str], Optional[str]) -> str
    # An empty entry is the current directory, so it stays.
    rest = [each for each in path.split(os.pathsep) if each not in folders] if path else []
    return os.pathsep.join(list(folders) + rest)


def restore(environ):
    # type: (Dict[str, str]) -> None
    """Let this interpreter look as if it had the options that were dropped: ``sys.flags``, its environment.

    Some programs start themselves again until they are isolated, and children without the option heed what
    it ignores.
    """
    text = environ.pop(IGNORED, None)
    if text is None:
        return
    for name in _ISOLATED:
        environ.pop(name, None)
    ours = environ.get(_PATH, "").split(os.pathsep)
    dropped = json.loads(text)
    environ.update(dict((_native(name), _native(value)) for name, value in dropped["variables"].items()))
    if _PATH in dropped["variables"]:
        environ[_PATH] = _in_front(ours, environ[_PATH])
    flags = {"ignore_environment": 1}
    if dropped["isolated"]:
        flags.update(isolated=1, no_user_site=1)
        if sys.version_info < (3, 11):
            sys.meta_path.insert(0, _WithoutFirst(list(sys.path)))
    sys.flags = _flags(flags)
    words = getattr(sys, "orig_argv", None)
    if words:
        words[1 : 1 + dropped["left"]] = dropped["words"]


class _WithoutFirst(object):
    """An import hook that removes the program's folder from the path, at the first import of the program.

    Up to Python 3.10 only ``-I`` keeps it away; it comes after ``site``.
    """

    def __init__(self, path):
        # type: (List[str]) -> None
        self._path = path

    def find_spec(self, name, path=None, target=None):
        # type: (str, Any, Any) -> Any
        count = len(self._path)
        if len(sys.path) > count and sys.path[-count:] == self._path:
            program = sys.argv[0] if getattr(sys, "argv", None) else ""
            # A folder or a zip file that is the program itself has to stay.
            if os.path.abspath(sys.path[-count - 1]) != os.path.abspath(program):
                del sys.path[-count - 1]
            sys.meta_path.remove(self)


def _flags(changed):
    # type: (Dict[str, int]) -> Any
    """Return what looks like ``sys.flags`` with these other values; there is no way to make another one."""
    plain = sys.flags  # type: Any
    if not isinstance(plain, tuple):  # an old virtualenv has replaced them
        vars(plain).update(changed)
        return plain
    names = [
        name for name in dir(plain) if not name.startswith("_") and isinstance(getattr(plain, name), int)
    ]
    fields = dict((name, changed.get(name, getattr(plain, name))) for name in names)
    order = re.findall(r"(\w+)=", repr(plain))
    shown = "sys.flags(%s)" % ", ".join("%s=%r" % (name, fields[name]) for name in order)
    fields.update(__repr__=lambda self: shown, __module__="sys")
    return type("flags", (tuple,), fields)(fields[name] for name in order)


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
        return "%s and %s were removed from its environment" % (_PATH, VARIABLE)
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
