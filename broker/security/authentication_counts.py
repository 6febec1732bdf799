"""How many connections of a listener have authenticated, and how many have failed to: for the metrics.

A connection authenticates by its TLS handshake if its listener has no SASL, and else by its login. A handshake that
fails counts as failed on either. A login that renews one counts apart. A listener without TLS and SASL counts nothing.

Source: the metrics of Kafka's `Selector`.
"""

from __future__ import annotations


class AuthenticationCounts:
    """Of one listener. The two `_again` are of connections that had authenticated before (KIP-368)."""

    __slots__ = ("failed", "failed_again", "successful", "successful_again")

    def __init__(self) -> None:
        self.successful = 0
        self.failed = 0
        self.successful_again = 0
        self.failed_again = 0
