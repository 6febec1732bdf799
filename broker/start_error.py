"""The error raised when a broker cannot start."""


class StartError(Exception):
    """A one-line message for users that says what is wrong and, unless obvious, what to do about it."""
