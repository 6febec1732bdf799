"""Everything that happens in a simulation, as one hash: two runs are the same if their traces are.

With `lines`, each event is also written as one line of text, so that the first difference of two runs can be found:

    12.003417 deliver broker-1 producer-2 64 8d1f3c00
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TextIO
from zlib import crc32

from tests.simulation.loop import SimulatedLoop

_HEAD = struct.Struct(">qI").pack


class Trace:
    """`events` counts what was noted."""

    def __init__(self, loop: SimulatedLoop, lines: TextIO | None = None) -> None:
        self.events = 0
        self._loop = loop
        self._lines = lines
        self._hash = blake2b(digest_size=16)

    def note(self, event: str, source: str = "", target: str = "", content: bytes = b"") -> None:
        """Adds an event at the current time. The texts and the content may be anything deterministic."""
        self.events += 1
        words = f"{event} {source} {target}"
        self._hash.update(_HEAD(self._loop.now_us, len(content)) + words.encode() + content)
        if self._lines is not None:
            print(f"{self._loop.time():.6f} {words} {len(content)} {crc32(content):08x}", file=self._lines)

    @property
    def digest(self) -> str:
        """The hash of everything so far."""
        return self._hash.hexdigest()
