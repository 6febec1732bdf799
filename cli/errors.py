"""The exception that ends a command."""


class CommandError(Exception):
    """A failure that is reported to the user in one line."""
