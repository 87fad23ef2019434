"""Values of options that decisions depend on, which the table of options must have without more."""

from __future__ import annotations

from typing import Literal

__all__ = ["Existing"]

Existing = Literal["replace", "keep", "fail"]
"""What to do with a file in the destination that no item of the job has stored."""
