"""Keep the agent in whatever this process executes, with which environment and options ever.

The functions that execute a file are replaced: the others of ``os``, ``subprocess``, ``multiprocessing``
and gevent's ``subprocess`` call these. What something else than Python executes is found by the controller
(``diagnostics.missed``).
"""

import os
import sys

from . import entrance, wrapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Sequence, Tuple

    Change = Callable[..., Tuple[Any, ...]]

_decoded = getattr(os, "fsdecode", str)  # type: Callable[[Any], str]
_encoded = getattr(os, "fsencode", str)  # type: Any


class _Keeper(object):
    """Corrects the arguments of the functions, for one ``entrance.Entrance``."""

    def __init__(self, way):
        # type: (entrance.Entrance) -> None
        self._way = way

    def _entered(self, path, argv, environ):
        # type: (Any, Sequence[Any], Dict[Any, Any]) -> Tuple[List[str], Dict[str, str]]
        argv = [_decoded(each) for each in argv]
        name = argv[0] if isinstance(path, int) else _decoded(path)
        env = dict((_decoded(key), _decoded(value)) for key, value in environ.items())
        return entrance.entered(argv, env, self._way, entrance.is_python(name))

    def execve(self, path, argv, environ, *rest):
        # type: (Any, Sequence[Any], Any, *Any) -> Tuple[Any, ...]
        """Return the arguments of ``os.execve``, ``os.posix_spawn``."""
        argv, env = self._entered(path, argv, environ)
        return (path, argv, env) + rest

    def fork_exec(self, argv, executables, close, kept, folder, env, *rest):
        # type: (Any, Any, Any, Any, Any, Any, *Any) -> Tuple[Any, ...]
        """Return the arguments of ``_posixsubprocess.fork_exec``."""
        environ = os.environ if env is None else dict(each.split(b"=", 1) for each in env)
        argv, changed = self._entered(next(iter(executables)), argv, environ)  # type: ignore[arg-type]
        listed = [_encoded(key) + b"=" + _encoded(value) for key, value in changed.items()]
        return (argv, executables, close, kept, folder, listed) + rest

    def execv(self, function):
        # type: (Any) -> Any
        """Return a replacement for ``os.execv``, which calls ``os.execve``."""
        execute = os.execve

        def execv(path, argv):
            # type: (Any, Any) -> Any
            try:
                words, env = self._entered(path, argv, os.environ)  # type: ignore[arg-type]
            except Exception:
                return function(path, argv)  # raises the error of the program
            return execute(path, words, env)

        return execv

    def shell(self, function):
        # type: (Any) -> Any
        """Return a replacement for ``os.system``: the shell gets the environment of the process."""

        def system(*args, **kwargs):
            # type: (*Any, **Any) -> Any
            _, env = entrance.entered([], dict(os.environ), self._way, False)
            changed = [name for name in env if os.environ.get(name) != env[name]]
            for name in changed:
                os.putenv(name, env[name])
            try:
                return function(*args, **kwargs)
            finally:
                for name in changed:
                    if name in os.environ:
                        os.putenv(name, os.environ[name])
                    else:
                        os.unsetenv(name)

        return system


def _changing(change):
    # type: (Change) -> Callable[[Any], Any]
    def replacement(function):
        # type: (Any) -> Any
        def changed(*args, **kwargs):
            # type: (*Any, **Any) -> Any
            rest = dict(kwargs)
            try:
                named = [rest.pop(name) for name in ("path", "argv", "env") if name in rest]
                given = change(*(list(args) + named))
            except Exception:
                return function(*args, **kwargs)  # raises the error of the program
            return function(*given, **rest)

        return changed

    return replacement


def keep(spec):
    # type: (Dict[str, Any]) -> None
    """Keep the agent in all that this process executes, from now on; forks inherit that."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = [each for each in folders if each == here or each.startswith(here + os.sep)] or [here]
    keeper = _Keeper(
        entrance.Entrance(os.environ[entrance.VARIABLE], path, dict(spec.get("environment") or {}))
    )
    executes = _changing(keeper.execve)
    for name, replacement in (
        ("execv", keeper.execv),
        ("execve", executes),
        ("posix_spawn", executes),
        ("posix_spawnp", executes),
        ("system", keeper.shell),
    ):
        wrapping.replace(os, name, replacement)
    if sys.version_info[0] == 2:
        wrapping.replace(os, "popen", keeper.shell)
        return
    forks = _changing(keeper.fork_exec)
    try:
        import _posixsubprocess  # compiled, and imports nothing
    except ImportError:
        return
    wrapping.replace(_posixsubprocess, "fork_exec", forks)
    if "_fork_exec" in vars(sys.modules.get("subprocess", os)):  # something has imported it before
        wrapping.replace(sys.modules["subprocess"], "_fork_exec", forks)
