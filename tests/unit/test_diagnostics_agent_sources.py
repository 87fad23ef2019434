"""What the agent's sources must be so that each Python that it examines can load them."""

from __future__ import annotations

from pathlib import Path

from diagnostics.agent import https_agent


def test_sources_of_the_agent_are_ascii() -> None:
    """Python 2.7 loads no others without a declaration; it is not on every machine that runs the tests."""
    agent = Path(https_agent.__file__).parents[1]
    sources = list(agent.rglob("*.py"))
    assert len(sources) > 20
    assert [path.name for path in sources if not path.read_bytes().isascii()] == []
