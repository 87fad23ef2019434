"""When a process that is waited for counts as stuck."""

from __future__ import annotations

import pytest

from downloader.core.silence import Silence, VitalSigns


def looks(silence: Silence, signs: list[VitalSigns | None], every: float = 1.0) -> list[bool]:
    return [silence.look((number + 1) * every, each) for number, each in enumerate(signs)]


def idle(state: str, count: int) -> list[VitalSigns | None]:
    return [VitalSigns(state, 5, 7)] * count


def test_silence_for_the_limit_is_too_long() -> None:
    assert looks(Silence(3.0, 0.0), idle("S", 4)) == [False, False, False, True]
    assert looks(Silence(3.0, 0.0), [None] * 4) == [False, False, False, True]


@pytest.mark.parametrize("progress", [{"cpu": 6}, {"bytes": 8}], ids=str)
def test_work_is_a_sign(progress: dict[str, int]) -> None:
    working = VitalSigns("R", 5, 7)
    signs = [*idle("R", 3), working._replace(**progress), working._replace(**progress)]
    silence = Silence(3.0, 0.0)
    assert not any(looks(silence, signs))
    assert silence.seconds == 1.0


def test_a_change_of_state_is_none() -> None:
    assert looks(Silence(3.0, 0.0), [*idle("S", 3), *idle("T", 1)])[-1]


def test_a_message_is_a_sign() -> None:
    silence = Silence(3.0, 0.0)
    assert not any(looks(silence, [None] * 3))
    silence.heard()
    assert not silence.look(4.0, None)


def test_time_in_which_the_watcher_was_stopped_does_not_count() -> None:
    """Nor does a clock that goes back."""
    silence = Silence(3.0, 0.0)
    assert not silence.look(1000.0, None)
    assert not silence.look(5.0, None)
    assert silence.seconds == 1.0


def test_a_disk_and_a_server_have_longer_unless_the_process_is_stopped() -> None:
    assert looks(Silence(1.0, 0.0), idle("D", 11))[9:] == [False, True]
    assert looks(Silence(1.0, 0.0, patient=True), idle("S", 11))[9:] == [False, True]
    assert looks(Silence(1.0, 0.0, patient=True), idle("T", 2)) == [False, True]
