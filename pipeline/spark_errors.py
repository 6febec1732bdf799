"""What went wrong within Spark, as one sentence: the last cause, without traces."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Any

from odradek.pipeline.errors import PipelineError

NO_ROOM = "No space left on device"
SIGNS = {
    "CANNOT_LOAD_STATE_STORE": "the keys that the checkpoint remembers (its directory state/) cannot be read",
    "STATE_STORE_KEY_SCHEMA": "the keys that the checkpoint remembers (its directory state/) are of other types",
    "JAVA_GATEWAY_EXITED": "Spark's Java did not start, see the lines above",
    "long overflow": "a time is beyond what Spark can hold, most likely the timestamp of a record",
    "Mkdirs failed to create": "a value of partition-by is longer than a directory's name may be, or the lake is not "
    "to be written to",
}
"""Conditions of Spark's that need more words than it has."""
AGAIN = "make room and start again; nothing is lost"
_NOISE = re.compile(r"^(?:Job aborted due to stage failure: .*?: |(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): )+")
_TRACE = "Traceback (most recent call last):"


def as_pipeline_error(error: BaseException, doing: str) -> PipelineError:
    """The error of a job. `doing`: what it was at."""
    if isinstance(error, PipelineError):
        return error
    texts = list(_texts(error))
    if any(NO_ROOM in text for text in texts) or getattr(error, "errno", None) == errno.ENOSPC:
        return PipelineError(f"{doing}: the disk is full ({NO_ROOM})", AGAIN)
    doing = next((told for sign, told in SIGNS.items() if any(sign in text for text in texts)), doing)
    lines = [line for text in texts if (line := _line(text))]
    return PipelineError(f"{doing}: {lines[-1] if lines else type(error).__name__}")


def _texts(error: BaseException) -> Iterator[str]:
    """What the error and its causes say, in Python and then in Java, outermost first."""
    seen: BaseException | None = error
    while seen is not None:
        yield str(seen)
        java: Any = getattr(seen, "_origin", None) or getattr(seen, "java_exception", None)
        for _ in range(20):
            if java is None:
                break
            yield str(java.toString())
            java = java.getCause()
        seen = seen.__cause__


def _line(text: str) -> str:
    """The first line, without the names of classes before it and the state after it; of a trace of Python the last."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if _TRACE in text:
        lines = [line for line in lines if _NOISE.match(line) and _TRACE not in line][-1:] or lines
    return _NOISE.sub("", lines[0]).split(" SQLSTATE: ")[0].strip() if lines else ""
