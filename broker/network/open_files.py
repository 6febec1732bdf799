"""How many files and sockets this process may have open (RLIMIT_NOFILE), and who may take them.

The system always gives out the lowest descriptor that is free. So a connection whose descriptor is above a bound tells
that as many are in use, whatever they are, and those above the bound stay for the logs.
"""

from __future__ import annotations

import contextlib
import resource

NO_LIMIT = 2**31 - 1
RESERVED_SHARE = 4
"""One in so many descriptors is no connection's."""


def open_files_limit() -> int:
    """The limit of this process."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return NO_LIMIT if limit == resource.RLIM_INFINITY else limit


def allow_many_files() -> int:
    """As many as the system lets this process have: a shell's 1024 are some hundred partitions. The limit then."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS calls its limit infinite and refuses it
        if limit != most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return open_files_limit()


def descriptors_for_connections(limit: int) -> int:
    """Connections have descriptors below this number."""
    return limit - limit // RESERVED_SHARE


def descriptors_for_sending(limit: int) -> int:
    """Connections that send from files have a second one below this number; those above are the logs' alone."""
    return limit - limit // RESERVED_SHARE // 2
