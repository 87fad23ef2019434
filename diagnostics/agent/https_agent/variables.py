"""Tell what the environment of this process has: start scripts and the program itself put secrets there.

Which of the values are secret is decided where all rules for that are: where the reports are read.
"""

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

_SHORTEST = 6  # characters of a value that may be a secret
_told = {}  # type: Dict[str, str]


def news():
    # type: () -> Dict[str, Any]
    """Return the variables that may be secret and were not told yet with their present values.

    A child that was forked has told what its parent has.
    """
    found = {}
    for name in list(os.environ):
        value = os.environ.get(name)
        if not isinstance(value, str) or len(value) < _SHORTEST or value.startswith("/"):
            continue
        if _told.get(name) != value:
            _told[name] = value
            found[_text(name)] = _text(value)
    return found


def _text(value):
    # type: (Any) -> Any
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
