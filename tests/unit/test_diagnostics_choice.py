"""When a process may be probed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any

import gevent  # noqa: F401
import pytest

from diagnostics.agent.https_agent import choice


def called(module: str, function: str, inner: Callable[[], Any]) -> Any:
    """Call ``inner`` from a function of this name in a module of this name."""

    def call() -> Any:
        return inner()

    code: CodeType = call.__code__.replace(co_name=function)
    return FunctionType(code, {"__name__": module}, closure=call.__closure__)()


def frame() -> FrameType:
    return sys._getframe()


@pytest.mark.parametrize("function", ["patch_all", "_patch_existing_locks", "reinit"])
def test_patching_is_an_obstacle_whatever_is_imported_meanwhile(function: str) -> None:
    at = called("gevent.monkey", function, lambda: called("settings", "<module>", frame))
    assert choice.obstacle(at) == choice.PATCHES
    found = choice.patching(at)
    assert found is not None
    assert (found[0], found[1].f_code.co_name) == (at, function)


def test_outermost_call_is_the_one_that_patches() -> None:
    at = called("gevent.monkey", "patch_all", lambda: called("gevent.monkey", "patch_thread", frame))
    found = choice.patching(at)
    assert found is not None
    assert found[1].f_code.co_name == "patch_all"


def test_another_thread_may_patch() -> None:
    came, go = threading.Event(), threading.Event()

    def wait() -> None:
        came.set()
        go.wait()

    thread = threading.Thread(target=called, args=("gevent.monkey", "patch_all", wait))
    thread.start()
    came.wait()
    try:
        assert choice.obstacle(frame()) == choice.PATCHES
    finally:
        go.set()
        thread.join()
    assert choice.obstacle(frame()) != choice.PATCHES


@pytest.mark.parametrize(("module", "function"), [("app", "patch_all"), ("gevent.hub", "run")])
def test_other_functions_are_none(module: str, function: str) -> None:
    assert choice.patching(called(module, function, frame)) is None
