"""The errors of those who advance virtual time."""

from __future__ import annotations


class CannotAdvance(RuntimeError):
    """Time cannot be advanced now. The message says why, and what to do."""


class AdvanceFailed(RuntimeError):
    """An advance did not come to its end: something that it has to wait for takes too long. The message says what."""
