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
        pytest.param([b"1", b""], [], b"", 1, id="nothing says nothing"),
        pytest.param([b"1", b"2"], [], None, 0, id="what is no response"),
        pytest.param([b"1", b"2"], [], OSError(), 0, id="a refusal"),
        pytest.param([b"1"], [], b"2", 0, id="the first one is its own"),
        pytest.param([b"1", OSError()], [], b"2", 1, id="a refusal before"),
    ],
)
def test_what_is_in_doubt(before: list[object], held: list[object], surplus: object, doubtful: int) -> None:
    row = [(object(), body) for body in held]
    assert stored(*before).doubtful(row, surplus, whole=True) == doubtful


@pytest.mark.parametrize(
    ("before", "held", "surplus", "doubtful"),
    [
        pytest.param(b"2" * 9999, [], b"2" * 600, 0, id="twice, as far as it has come"),
        pytest.param(b"2" * 9999, [], b"2" * 5000, 0, id="twice, and more than is compared"),
        pytest.param(b"2" * 9999, [], b"2" * 50, 1, id="it may be any other"),
        pytest.param(b"2" * 9999, [], b"", 1, id="a head alone"),
        pytest.param(b"2" * 9999, [b"2" * 9999], b"", 0, id="twice, before"),
        pytest.param(b"2" * 599, [], b"2" * 600, 1, id="a longer one"),
    ],
)
def test_where_the_surplus_has_only_begun(
    before: bytes, held: list[object], surplus: bytes, doubtful: int
) -> None:
    row = [(object(), body) for body in held]
    assert stored(b"1", before).doubtful(row, bytearray(surplus), whole=False) == doubtful


@pytest.mark.parametrize(
    ("row", "surplus", "doubtful"),
    [
        pytest.param([("a", b"2"), ("a", b"a")], b"a", 1, id="shifted: the answers to both requests for a"),
        pytest.param([("a", b"a"), ("a", b"a")], b"a", 0, id="the second came twice"),
        pytest.param([("a", b"2"), ("b", b"a"), ("b", b"b")], b"b", 1, id="shifted, behind a window"),
        pytest.param([("a", b"2"), ("b", b"a"), ("a", b"b")], b"a", 1, id="shifted, an earlier one again"),
        pytest.param([("a", b"a"), ("a", b"b")], b"b", 1, id="a may have changed, or not"),
    ],
)
def test_what_is_requested_twice_comes_twice(
    row: list[tuple[object, object]], surplus: bytes, doubtful: int
) -> None:
    assert stored(b"0", b"1").doubtful(row, surplus, whole=True) == doubtful


def test_nothing_before_a_proof_is_in_doubt() -> None:
    lone = stored(b"1", b"2", b"3")
    lone.in_step()
    assert lone.doubtful([], b"9", whole=True) == 0
    lone.add(b"4")
    assert lone.doubtful([], b"9", whole=True) == 1
