"""The error that a command ends with."""


class CommandError(Exception):
    """What the user is told in one line."""
