"""Why a broker cannot start, for the one who started it."""


class StartError(Exception):
    """One line that says what is wrong and, where that is not obvious, what to do about it."""
