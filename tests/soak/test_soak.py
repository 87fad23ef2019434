"""The soak, for seconds; `make soak` is the full one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from harness import ROOT

sys.path.insert(0, str(Path(__file__).resolve().parent))

from slope import slope


def test_slope_is_distinguished_from_noise() -> None:
    random = Random(1)
    seconds = [5.0 * n for n in range(720)]
    noise = [50_000 + random.gauss(0, 300) for _ in seconds]
    assert not slope(seconds, noise).grows(0.0)
    for leak in (500.0, 5000.0):
        grows = slope(seconds, [v + leak * s / 3600 for v, s in zip(noise, seconds, strict=True)])
        assert grows.grows(0.0)
        assert abs(grows.per_hour - leak) < 200
    # A step up counts as growth, too.
    stepped = [v + 1000 * (s > 1800) for v, s in zip(noise, seconds, strict=True)]
    assert slope(seconds, stepped).grows(0.0)
    with pytest.raises(ValueError, match="too few"):
        slope(seconds[:20], noise[:20])


def test_short_soak(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tests/soak/soak.py", "--minutes", "0.1", "--rate", "100", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "600 files" in done.stdout
    assert "right" in done.stdout
    assert (tmp_path / "soak.csv").read_text().startswith("seconds,role,pid,rss_kb,descriptors")
