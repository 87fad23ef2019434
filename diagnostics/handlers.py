"""Say what a client of botocore calls besides its HTTP session, which is what was measured. Pure."""

from __future__ import annotations

from typing import Any

from diagnostics.evidence import Case
from diagnostics.model import Observation

__all__ = ["not_called", "shown"]


def not_called(case: Case) -> str:
    """Return why there is no verdict where handlers of the program's could not be measured; "" if there is.

    Calls may wait for each other in what they do. Where requests do so without them, that is the verdict.
    """
    left_out = (_of(case.observation) or {"left_out": []})["left_out"]
    if case.judgement.verdict != "concurrent" or not left_out:
        return ""
    event, spot = left_out[0]
    return (
        "no verdict: through the client's HTTP session HTTPS is concurrent, but for each call it calls"
        f" the program's handler of {event}{case.at(spot)}, too, which was not measured; name a fetch that"
        " calls the client, a function of one URL: --app MODULE:CALLABLE"
    )


def shown(seen: Observation, verdict: str) -> str:
    """Return what of such a client was measured, where it is concurrent; "" for other clients."""
    found = _of(seen)
    if found is None or verdict != "concurrent":
        return ""
    events = " and ".join(dict.fromkeys(event for event, _ in found["called"]))
    more = f", and the program's handlers of {events}" if events else ""
    return (
        f"measured was the HTTP session of the client{more}: what botocore does around it (signing,"
        " retries, parsing) was not"
    )


def _of(seen: Observation) -> dict[str, Any] | None:
    return (seen.result.get("sharing") or {}).get("handlers")
