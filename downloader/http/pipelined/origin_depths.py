"""See and adapt the depths of all origins of a client, for the control of its connections."""

from __future__ import annotations

from downloader.process import patching

patching.require()

from collections.abc import Collection, Mapping
from itertools import islice
from time import monotonic

from downloader.http.origin import Origin
from downloader.http.pipelined.connection import PipelinedConnection
from downloader.http.pipelined.depth_trial import FEWEST, MOST, DepthTrial
from downloader.http.pipelined.origin_state import OriginState

__all__ = ["OriginDepths"]


class OriginDepths:
    """The depths of ``states``, whose connections with requests are ``busy``; the client changes both."""

    def __init__(self, states: Mapping[Origin, OriginState], busy: Collection[PipelinedConnection]) -> None:
        self._states = states
        self._busy = busy

    def stop_reasons(self) -> dict[str, int]:
        """Return the reasons why the depth does not grow, with the number of origins for each."""
        found: dict[str, int] = {}
        for state in self._states.values():
            why = state.depth.stopped or "the end of the job"
            found[why] = found.get(why, 0) + 1
        return found

    @property
    def deepest(self) -> int:
        """Return the greatest depth."""
        return max((state.depth.now for state in self._states.values()), default=1)

    @property
    def deepen(self) -> bool:
        """Return whether a depth is still growing, and connections should not be added meanwhile."""
        now = monotonic()
        return any(state.deepens(now) for state in self._states.values())

    @property
    def by_trial(self) -> bool:
        """Return whether trials have led to the depths, so that responses are slow."""
        return any(state.by_trial for state in self._states.values())

    @property
    def responses(self) -> int:
        """Return the number of responses so far, of all origins."""
        return sum(state.responses for state in self._states.values())

    def adapt(self, *, climbs: bool, falls: bool) -> bool:
        """Let slow origins try the next depth; return whether how files finish has changed thereby.

        ``climbs``: the number of connections is being adapted; ``falls``: fewer are being tried, or are to
        be, and each depth stays as it is meanwhile.
        """
        now, changed = monotonic(), False
        for state in self._states.values():
            before = state.by_trial, state.depth.now
            if state.trial is not None:
                self._judge(state.trial, state)
            elif climbs and state.is_slow(now):
                self._try(state)
            state.waits = climbs or state.trial is not None
            state.held = falls
            state.by_trial = state.by_trial and state.waits
            changed = changed or before != (state.by_trial, state.depth.now)
        return changed

    def adapt_no_more(self) -> None:
        """Give trials up, and let each origin measure its depth for itself."""
        for state in self._states.values():
            state.end_trial(pays=None)
            state.waits = state.held = state.by_trial = False

    def _try(self, state: OriginState) -> None:
        if state.depth.now < state.depth.most:
            settled = (each for each in self._busy if each.origin_state is state and each.served)
            connections = list(islice(settled, MOST))
            if len(connections) >= FEWEST:
                state.trial = DepthTrial(connections)

    def _judge(self, trial: DepthTrial, state: OriginState) -> None:
        if state.depth.stopped:
            state.end_trial(pays=None)
            return
        pays = trial.pays(state.depth, self._busy)
        if pays is not None:
            state.end_trial(pays=pays)
