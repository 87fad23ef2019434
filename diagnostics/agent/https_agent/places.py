"""Name the place of a frame so that a person finds it: a file that exists, or what it is instead.

What is in no file has a name in angle brackets. The code that the user wrote (``python -c``, the cells of a
notebook, standard input) is kept in ``sources``; the rest only says what it is: ``<compiled code of
gevent>``.
"""

import os
import re
import sys

from . import https_inspection

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, FrameType
    from typing import Any, Dict, List, Optional, Tuple

    # File, line, function; in what the user wrote without a file, the column, too.
    Spot = Tuple[Any, ...]

COMMAND = "<python -c>"
INPUT = "<standard input>"
_GENERATED = "<generated code %s>"
# Texts of `python -c` that programs write to start their own processes.
_OF_PROGRAMS = re.compile(r"\b(multiprocessing|billiard|execnet|loky|joblib)\b|exec\(eval\(sys\.stdin")
_IMPORT_NAME = 108
_NAMED = (_IMPORT_NAME, 101, 106, 116, 160)  # and LOAD_NAME, LOAD_ATTR, LOAD_GLOBAL, LOAD_METHOD
_EXTENSIONS = (".so", ".pyd", ".dll", ".dylib")

sources = {}  # type: Dict[str, List[str]]  # by name, the lines of what the user wrote without a file
_names = {}  # type: Dict[str, str]  # by co_filename
_cells = {}  # type: Dict[str, str]  # by co_filename, the cells of a notebook
_told = []  # type: List[str]  # the text of `python -c`, once it has been looked for


def spot(frame, line=None, last=None):
    # type: (FrameType, Optional[int], Optional[int]) -> Spot
    """Return the place of ``frame``; at ``line`` and the instruction ``last`` of a traceback, if given."""
    code = frame.f_code
    line = frame.f_lineno if line is None else line
    found = _doctest(frame, line) if code.co_filename.startswith("<doctest ") else None
    if found is not None:
        return found
    name = name_of(frame)
    if name not in sources:
        return (name, line, code.co_name)
    text = sources[name][line - 1] if line and 0 < line <= len(sources[name]) else ""
    column = _column(code, frame.f_lasti if last is None else last, text) if ";" in text else None
    return (name, line, code.co_name) if column is None else (name, line, code.co_name, column)


def name_of(frame):
    # type: (FrameType) -> str
    """Return the file that the code of ``frame`` is in, else a name in angle brackets."""
    return _name_of(frame.f_code, frame.f_globals)


def of_function(function):
    # type: (Any) -> Spot
    """Return the place where ``function``, which is written in Python, begins."""
    code = function.__code__
    return (_name_of(code, function.__globals__), code.co_firstlineno, code.co_name)


def _name_of(code, names):
    # type: (CodeType, Dict[str, Any]) -> str
    name = code.co_filename
    if name == "<string>" and names.get("__name__") == "__main__" and _in_command(code):
        return COMMAND
    if name == "<stdin>" and names.get("__name__") == "__main__":
        sources.setdefault(INPUT, [])
        return INPUT
    found = _names.get(name)
    if found is None:
        found = _cell(name)
        if not found:
            found = name if name.startswith("<") else _file(name, names)
        _names[name] = found
    return found


def _file(name, names):
    # type: (str, Dict[str, Any]) -> str
    """Return the file ``name`` if it exists, else what the code with the globals ``names`` is."""
    if _exists(https_inspection.absolute(name)):
        return name
    now = os.path.abspath(name)  # where the program has changed its directory before the import
    if _exists(now):
        return now
    file, module = names.get("__file__"), str(names.get("__name__") or "")
    if isinstance(file, str) and file.endswith(".pyc") and _exists(https_inspection.absolute(file)):
        return file
    if name.endswith((".pyx", ".pxd", ".pxi")) or (isinstance(file, str) and file.endswith(_EXTENSIONS)):
        return "<compiled code of %s>" % (module.partition(".")[0] or os.path.basename(name))
    return _GENERATED % os.path.basename(name)


def _exists(path):
    # type: (str) -> bool
    """Return whether ``path`` is a file, or in an archive that is one."""
    if os.path.exists(path):
        return True
    above = os.path.dirname(path)
    while above and above != os.path.dirname(above) and not os.path.exists(above):
        above = os.path.dirname(above)
    return os.path.isfile(above)


# python -c


def command():
    # type: () -> str
    """Return the text that the user has given to ``python -c``; "" if this is another process."""
    if not _told:
        text = _command_in(list(getattr(sys, "orig_argv", ())) or _arguments())
        _told.append("" if _OF_PROGRAMS.search(text) else text)
        if _told[0]:
            sources[COMMAND] = _told[0].splitlines()
    return _told[0]


def _arguments():
    # type: () -> List[str]
    """Return the arguments of the interpreter, also before Python 3.10."""
    try:
        with open("/proc/self/cmdline") as source:
            return source.read().split("\0")[:-1]
    except (IOError, OSError, ValueError):
        return []


def _command_in(argv):
    # type: (List[str]) -> str
    number = 1
    while number < len(argv):
        option = argv[number]
        if not option.startswith("-") or option in ("-", "--"):
            return ""
        if option.startswith("--"):
            number += 1 + (option == "--check-hash-based-pycs")
            continue
        for place, letter in enumerate(option):
            rest = option[place + 1 :]
            if letter == "m":
                return ""
            if letter == "c":
                return rest or "".join(argv[number + 1 : number + 2])
            if letter in "WXQ":
                number += not rest
                break
        number += 1
    return ""


def _in_command(code):
    # type: (Any) -> bool
    """Return whether ``code`` is of ``python -c``, and not made by an ``exec`` or a dataclass there."""
    if not command():
        return False
    lines, number, name = sources[COMMAND], max(code.co_firstlineno, 1), code.co_name
    if number > len(lines):
        return False
    if name == "<module>":
        return all(each in _told[0] for each in code.co_names if each.isalnum())
    text = lines[number - 1].lstrip()
    if name.startswith("<"):
        return ("lambda" if name == "<lambda>" else "for") in text
    return text.startswith("@") or re.search(r"\b(def|class)\s+%s\b" % re.escape(name), text) is not None


# notebooks


def _cell(name):
    # type: (str) -> str
    """Return ``<In [N]>`` where ``name`` is of a cell of IPython; else ""."""
    if name not in _cells:
        look_at_cells()
    return _cells.get(name, "")


def look_at_cells():
    # type: () -> None
    """Take the cells of IPython, and their text, into ``sources``."""
    module = sys.modules.get("IPython.core.interactiveshell")
    shell = getattr(getattr(module, "InteractiveShell", None), "_instance", None)
    texts = getattr(sys.modules.get("linecache"), "cache", {})
    if shell is None:
        return
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", None) or {}
    for name, entry in list(texts.items()):
        found = re.match(r"<ipython-input-(\d+)-", name)
        if name in _cells or not (found or name in numbers or "/ipykernel_" in name) or len(entry) < 3:
            continue
        number = int(found.group(1)) if found else numbers.get(name) or _number(shell, entry[2])
        _cells[name] = "<In [%s]>" % (number or "?")
        sources[_cells[name]] = [line.rstrip("\r\n") for line in entry[2]]


def _number(shell, lines):
    # type: (Any, List[str]) -> int
    """Return the number of the input with that text; 0 if there is none."""
    text = "".join(lines).strip()
    inputs = shell.user_ns.get("In") if isinstance(getattr(shell, "user_ns", None), dict) else None
    for number, given in enumerate(inputs or ()):
        if str(given).strip() == text:
            return number
    return 0


def cell_of(name):
    # type: (str) -> bool
    """Return whether ``name`` is one of the cells."""
    return name.startswith("<In [")


# doctests


def _doctest(frame, line):
    # type: (FrameType, int) -> Optional[Spot]
    """Return the line of the docstring that ``doctest`` runs in ``frame``."""
    outer = frame  # type: Optional[FrameType]
    for _ in range(60):
        if outer is None:
            return None
        if outer.f_code.co_filename.endswith("doctest.py"):
            test, example = outer.f_locals.get("test"), outer.f_locals.get("example")
            file, begins = getattr(test, "filename", None), getattr(test, "lineno", None)
            within = getattr(example, "lineno", None)
            if file and within is not None:
                return (str(file), (begins or 0) + within + line, frame.f_code.co_name)
        outer = outer.f_back
    return None


def _column(code, last, text):
    # type: (Any, int, str) -> Optional[int]
    """Return the column of the instruction ``last`` in the line ``text``, which has several statements."""
    if hasattr(code, "co_positions"):
        try:
            found = list(code.co_positions())[last // 2][2]
        except (IndexError, TypeError):
            return None
        return int(found) if found is not None else None
    # Before Python 3.11: by the name that is imported there, else by the last that was loaded.
    for number in range(last, -1, -2) if sys.version_info[0] > 2 else ():
        if code.co_code[number] in _NAMED and code.co_code[number + 1] < len(code.co_names):
            name = re.escape(code.co_names[code.co_code[number + 1]])
            word = r"\b(?:import|from)\s+%s\b" if code.co_code[number] == _IMPORT_NAME else r"\b%s\s*\("
            match = re.search(word % name, text)
            return match.start() if match else None
    return None
