"""The messages between the cleaner process and the broker; see worker.py."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any

GO = b"go\n"
STOP = b"stop\n"


class Message(StrEnum):
    PROGRESS = "progress"
    GROUP = "group"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


def encode(kind: Message, *values: object) -> bytes:
    return json.dumps([kind, *values]).encode() + b"\n"


def decode(line: bytes) -> tuple[Message, list[Any]]:
    kind, *values = json.loads(line)
    return Message(kind), values
