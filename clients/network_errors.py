"""How a request to another broker fails. These stand apart from the client, which a lone broker never imports."""

from __future__ import annotations


class NetworkError(Exception):
    """A request could not be sent, or its response did not arrive. The message names the broker."""


class NodeUnreachable(NetworkError):
    """The connection could not be established."""


class Disconnected(NetworkError):
    """The connection ended before the response arrived."""


class RequestTimedOut(NetworkError):
    """The response did not arrive in time."""


class UnsupportedVersion(NetworkError):
    """The broker does not serve the API, or not in any version that we know."""


class LoginRefused(NetworkError):
    """The broker does not let us in, or is not the one that knows our password."""
