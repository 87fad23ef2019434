"""Which stored files are in doubt when a response comes that nobody asked for."""

from __future__ import annotations

import pytest

from downloader.core.lone_responses import LoneResponses


def stored(*bodies: object) -> LoneResponses:
    lone = LoneResponses()
    for body in bodies:
        lone.add(body)
    return lone


@pytest.mark.parametrize(
    ("before", "held", "surplus", "doubtful"),
    [
        # The second response came twice, in this place, and the one awaited is that of the third request.
        pytest.param([b"1", b"2", b"2"], [], b"3", 2, id="shifted"),
        pytest.param([b"1", b"2", b"2", b"3", b"4"], [], b"5", 4, id="shifted for long"),
        pytest.param([b"1", b"2", b"2", b"3"], [b"4"], b"5", 3, id="shifted, and one is held"),
        pytest.param([b"1", b"2"], [], b"2", 0, id="twice, at once"),
        pytest.param([b"1", b"2"], [b"2"], b"3", 0, id="twice, and the next"),
        pytest.param([b"1", b"2"], [b"3", b"4", b"4"], b"5", 0, id="twice in a window"),
        pytest.param([b"1", b"2" * 9999], [], b"2" * 9999, 0, id="twice, a long one"),
        pytest.param([b"1", b"2" * 9999], [], bytearray(b"2" * 50), 0, id="twice, as far as it has come"),
        pytest.param([b"1", b"2"], [], None, 0, id="what is no response"),
        pytest.param([b"1", b"2"], [], OSError(), 0, id="a refusal"),
        pytest.param([b"1"], [], b"2", 0, id="the first one is its own"),
        pytest.param([b"1", OSError()], [], b"2", 1, id="a refusal before"),
    ],
)
def test_what_is_in_doubt(before: list[object], held: list[object], surplus: object, doubtful: int) -> None:
    assert stored(*before).doubtful(held, surplus) == doubtful


def test_nothing_before_a_proof_is_in_doubt() -> None:
    lone = stored(b"1", b"2", b"3")
    lone.in_step()
    assert lone.doubtful([], b"9") == 0
    lone.add(b"4")
    assert lone.doubtful([], b"9") == 1
