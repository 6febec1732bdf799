"""Validation of topic names. Source: Kafka's `org.apache.kafka.common.internals.Topic`."""

from __future__ import annotations

import re

MAX_TOPIC_NAME_LENGTH = 249
ALLOWED = "ASCII alphanumerics, '.', '_' and '-'"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_fault(name: str) -> str | None:
    """Returns why `name` is invalid, as an error message for the client, or None if it is valid."""
    if not name:
        return "A topic name must not be empty"
    if name in (".", ".."):
        return f"A topic name must not be {name!r}"
    if len(name) > MAX_TOPIC_NAME_LENGTH:
        return f"The topic name has {len(name)} characters; the maximum is {MAX_TOPIC_NAME_LENGTH}"
    if _LEGAL.fullmatch(name) is None:
        return f"Topic name is invalid: '{name}' contains one or more characters other than {ALLOWED}"
    return None


def unified_name(name: str) -> str:
    """The topic's name in metrics, where '.' becomes '_'. Two topics must not have the same one."""
    return name.replace(".", "_")
