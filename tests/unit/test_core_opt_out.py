"""Which responses say that their content is not to be used."""

from __future__ import annotations

import pytest

from downloader.core.opt_out import opt_out


@pytest.mark.parametrize(
    ("tags", "refused"),
    [
        ([], False),
        (["noai"], True),
        (["NoImageAI"], True),
        (["nofollow, noindex"], True),
        (["noimageindex"], True),
        (["none"], True),
        (["all"], False),
        (["nofollow, noarchive"], False),
        (["noindexing"], False),
        (["otherbot: noindex"], False),
        (["otherbot: noindex, nofollow, noai"], False),
        (["mass-downloader: noindex"], True),
        (["MASS-Downloader : noai"], True),
        (["mass: noindex"], False),
        (["*: noindex"], True),
        (["otherbot: noindex, mass-downloader: nofollow, noai"], True),
        # Each line of the field begins anew.
        (["otherbot: nofollow", "noindex"], True),
        (["otherbot: noindex", "otherbot: noai"], False),
        (["nofollow", "mass-downloader: noimageai"], True),
        # A colon does not always follow an agent.
        (["unavailable_after: 25 Jun 2010 15:00:00 PST"], False),
        (["unavailable_after: Fri, 25 Jun 2010 15:00:00 PST, noindex"], True),
        (["max-snippet: 20, noindex"], True),
        (["otherbot: max-snippet:20, noindex"], False),
        (["", ",", ": noindex", "a:b:c"], False),
    ],
)
def test_x_robots_tag(tags: list[str], refused: bool) -> None:
    assert bool(opt_out(tags, [], "mass-downloader")) is refused


def test_the_reason_names_the_directive() -> None:
    assert opt_out(["nofollow, NoAI"], [], "x") == "X-Robots-Tag: noai"
    assert opt_out([], ["1"], "x") == "tdm-reservation: 1"


@pytest.mark.parametrize(
    ("values", "refused"), [([], False), (["0"], False), ([" 1 "], True), (["0", "1"], True)]
)
def test_tdm_reservation(values: list[str], refused: bool) -> None:
    assert bool(opt_out([], values, "x")) is refused
