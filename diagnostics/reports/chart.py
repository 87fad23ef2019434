"""Draw the timeline of a round: the hub, and each request, with what held and what waited when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from diagnostics.model import Hold, RequestSpan, Timeline
from diagnostics.reports.elements import element, inside
from diagnostics.reports.outcome import shown

__all__ = ["chart"]

_TOGETHER = 0.01  # seconds between holds that are drawn as one
_SHORTEST_HOLD = 0.005  # seconds that are drawn
_NUMBERED = 0.035  # of the width: room for two digits on a narrow screen
_TICKS = 4


def chart(timeline: Timeline) -> list[Element]:
    """Return what is told, drawn and explained of ``timeline``."""
    requests = sorted(timeline.requests, key=lambda each: _turn(each, timeline))
    numbers = {each.index: number for number, each in enumerate(requests, 1)}
    holds = [each for each in _joined(timeline.holds) if each.ended - each.began >= _SHORTEST_HOLD]
    table = element("table", class_="timeline")
    head = inside(inside(table, "thead"), "tr")
    for text in ("request", "what happened when", "ended"):
        inside(head, "th", text, scope="col")
    body = inside(table, "tbody")
    _hub(body, timeline, holds, numbers)
    for request in requests:
        _request(body, timeline, request, numbers[request.index], holds)
    _axis(body, timeline)
    parts = [element("p", _told(timeline, holds)), table, _legend(any(each.waited for each in requests))]
    if timeline.many > len(requests):
        text = f"{len(requests)} of {timeline.many} requests are shown."
        parts.append(element("p", text, class_="quiet"))
    return parts


def _turn(request: RequestSpan, timeline: Timeline) -> tuple[float, int]:
    """Return when it was its turn: the server had it, or it ended, or never."""
    if request.waited:
        return request.waited[0][0], request.index
    return timeline.seconds if request.ended is None else request.ended, request.index


def _joined(holds: Sequence[Hold]) -> list[Hold]:
    """Return the holds, those of one request that follow each other as one, where it held the longest."""
    found: list[list[Hold]] = []
    for each in holds:
        last = found[-1][-1] if found else None
        if last and last.request == each.request and each.began - last.ended < _TOGETHER:
            found[-1].append(each)
        else:
            found.append([each])
    joined = []
    for group in found:
        longest = max(group, key=lambda each: each.ended - each.began)
        joined.append(Hold(group[0].began, group[-1].ended, longest.request, longest.where))
    return joined


def _told(timeline: Timeline, holds: Sequence[Hold]) -> str:
    held = sum(each.ended - each.began for each in holds)
    text = f"{timeline.many} requests took {round(timeline.seconds, 3):.2f} s; "
    if held:
        text += f"the hub was held for {held:.2f} s of them, in which no other greenlet could run."
    else:
        text += "nothing held the hub for long."
    edges = [
        edge for each in timeline.requests for came, left in each.waited for edge in ((came, 1), (left, -1))
    ]
    if edges:
        now = most = 0
        for _, change in sorted(edges):
            now += change
            most = max(most, now)
        whose = "them" if timeline.many == len(timeline.requests) else "those that are shown"
        text += f" The server had at most {most} of {whose} at once."
    return text


def _hub(body: Element, timeline: Timeline, holds: Sequence[Hold], numbers: dict[int, int]) -> None:
    row = inside(body, "tr", class_="hub")
    inside(row, "th", "hub", scope="row")
    held = [f"{_owner(each, numbers)} {_from_to(each.began, each.ended)}" for each in holds]
    drawn = _track(row, f"held by: {'; '.join(held)}" if held else "never held for long", 24)
    inside(drawn, "rect", class_="room", width="100%", height="24")
    for number, each in enumerate(holds):
        kind = "held other" if number % 2 else "held"
        text = f"{_from_to(each.began, each.ended)}: {_owner(each, numbers)}, {each.where}"
        _bar(drawn, timeline, each.began, each.ended, 0, 24, kind, text)
        middle = (each.began + each.ended) / 2 / timeline.seconds
        if each.request in numbers and (each.ended - each.began) / timeline.seconds >= _NUMBERED:
            label = inside(drawn, "text", str(numbers[each.request]), x=_percent(middle), y="17")
            label.set("text-anchor", "middle")
    inside(row, "td", "")


def _request(
    body: Element, timeline: Timeline, request: RequestSpan, number: int, holds: Sequence[Hold]
) -> None:
    row = inside(body, "tr")
    inside(row, "th", str(number), scope="row")
    own = [each for each in holds if each.request == request.index]
    ended = timeline.seconds if request.ended is None else request.ended
    told = [f"began at {request.began:.2f} s"]
    told += [f"at the server {_from_to(*each)}" for each in request.waited]
    told += [f"held the hub {_from_to(each.began, each.ended)}" for each in own]
    drawn = _track(row, ", ".join(told), 18)
    _bar(drawn, timeline, request.began, ended, 8, 2, "open")
    for came, left in request.waited:
        _bar(drawn, timeline, came, left, 1, 7, "server", f"{_from_to(came, left)}: at the server")
    for each in own:
        text = f"{_from_to(each.began, each.ended)}: held the hub at {each.where}"
        _bar(drawn, timeline, each.began, each.ended, 10, 7, "held", text)
    if request.ended is None:
        inside(row, "td", "not ended")
    elif request.failed:
        inside(row, "td", "failed", class_="failed", title=f"at {request.ended:.2f} s")
    else:
        inside(row, "td", f"{request.ended:.2f} s")


def _axis(body: Element, timeline: Timeline) -> None:
    row = inside(body, "tr", class_="axis")
    inside(row, "th", "")
    drawn = _track(row, "", 22)
    for at in _ticks(timeline.seconds):
        place = _percent(at / timeline.seconds)
        inside(drawn, "rect", class_="open", x=place, y="0", width="1", height="5")
        text = inside(drawn, "text", f"{at:g} s", x=place, y="18")
        text.set("text-anchor", "start" if at == 0 else "middle")
    inside(row, "td", "")


def _ticks(seconds: float) -> list[float]:
    """Return round times from 0 on, at most as many as fit, none so near the end that its label is cut."""
    least = seconds / _TICKS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= least)
    return [round(number * step, 9) for number in range(_TICKS + 1) if number * step <= 0.93 * seconds]


def _legend(server: bool) -> Element:
    legend = element("ul", class_="legend")
    kinds = [("open", "the greenlet has begun, and its request has not ended")]
    if server:
        kinds.append(("server", "the server has the request, and waits before it answers"))
    kinds.append(("held", "its code holds the hub: nothing else runs"))
    for kind, text in kinds:
        item = inside(legend, "li")
        mark = inside(item, "svg", width="22", height="10", aria_hidden="true")
        height = 2 if kind == "open" else 7
        inside(mark, "rect", class_=kind, y=str(5 - height // 2), width="22", height=str(height))
        inside(item, "span", text)
    return legend


def _owner(hold: Hold, numbers: dict[int, int]) -> str:
    return f"request {numbers[hold.request]}" if hold.request in numbers else "other code"


def _from_to(began: float, ended: float) -> str:
    return f"{began:.2f}–{ended:.2f} s"


def _track(row: Element, label: str, height: int) -> Element:
    cell = inside(row, "td", class_="track")
    drawn = inside(cell, "svg", width="100%", height=str(height))
    if label:
        drawn.set("role", "img")
        drawn.set("aria-label", shown(label))
    else:
        drawn.set("aria-hidden", "true")
    return drawn


def _bar(
    drawn: Element,
    timeline: Timeline,
    began: float,
    ended: float,
    y: int,
    height: int,
    kind: str,
    title: str = "",
) -> None:
    width = _percent((ended - began) / timeline.seconds)
    place = {"x": _percent(began / timeline.seconds), "y": str(y), "width": width, "height": str(height)}
    bar = inside(drawn, "rect", class_=kind, **place)
    if title:
        inside(bar, "title", title)


def _percent(share: float) -> str:
    return f"{100 * share:.3f}%"
