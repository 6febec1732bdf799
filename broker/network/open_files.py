"""How many files and sockets this process may have open (RLIMIT_NOFILE), and how connections and logs share them.

The system always assigns the lowest free descriptor. So a connection whose descriptor is above a bound shows that at
least that many descriptors are in use, for whatever purpose, and the descriptors above the bound are left to the logs.
"""

from __future__ import annotations

import contextlib
import resource

NO_LIMIT = 2**31 - 1
RESERVED_SHARE = 4
"""Connections may not use one in this many descriptors."""


def open_files_limit() -> int:
    """Returns the limit of this process."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return NO_LIMIT if limit == resource.RLIM_INFINITY else limit


def allow_many_files() -> int:
    """Raises the limit as far as the system allows and returns it. A shell's 1024 are some hundred partitions."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS reports an infinite limit but rejects it
        if limit != most:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return open_files_limit()


def descriptors_for_connections(limit: int) -> int:
    """Connections may use descriptors below this number."""
    return limit - limit // RESERVED_SHARE


def descriptors_for_sending(limit: int) -> int:
    """Connections that send files may use a second descriptor below this number; those above are for the logs only."""
    return limit - limit // RESERVED_SHARE // 2
