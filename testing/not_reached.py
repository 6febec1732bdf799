"""The error of a state that tests wait for."""

from __future__ import annotations


class NotReached(AssertionError):
    """A state was not reached in time. The message shows the state instead."""
