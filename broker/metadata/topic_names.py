"""Which names a topic may have. Source: Kafka's `org.apache.kafka.common.internals.Topic`."""

from __future__ import annotations

import re

MAX_TOPIC_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_fault(name: str) -> str | None:
    """What is wrong with `name`, in words for the client; None if nothing is."""
    if not name:
        return "A topic name may not be empty"
    if name in (".", ".."):
        return f"A topic may not be called {name!r}"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"The topic name has {len(name)} characters; {MAX_TOPIC_NAME_LENGTH} is the most"
    if _LEGAL.fullmatch(name) is None:
        return f"The topic name {name!r} contains characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def unified_name(name: str) -> str:
    """The name in metrics, which have '_' for '.'. Two topics may not have the same one."""
    return name.replace(".", "_")
