"""Turns errors of Spark into one sentence: the last cause, without stack traces."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError

from odradek.pipeline.errors import PipelineError

NO_ROOM = "No space left on device"
SIGNS = {
    "JAVA_GATEWAY_EXITED": "Spark's Java process did not start, see the lines above",
    "long overflow": "a time is beyond the range of Spark, most likely the timestamp of a record",
    "File name too long": "a value of partition-by is too long for a directory name",
}
"""Spark's error conditions whose messages need an explanation."""
AGAIN = "free some space and start again; no data is lost"
STORE_AGAIN = "check the store, and lake and [store], then start again; no data is lost"
_DISK = re.compile(rf"{NO_ROOM}(: \S+ of [\w.-]+)?")
"""With the directory and the machine, if an executor has reported them."""
_REQUEST = re.compile(
    r"Error performing ([A-Z]+) (\S+) in \S+?,?( after \d+ retries)?,? .*?- (.*?)(?: Debug source: .*)?$"
)
"""object_store's message for a request that finally failed, in deltalake and in obstore, joined to one line."""
_NOISE = re.compile(r"^(?:Job aborted due to stage failure: .*?: |(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): )+")
_RAISED = re.compile(r"^(?:[a-z_]\w*\.)*[A-Z]\w*(?:Exception|Error): .+", re.MULTILINE)
_ADVICE = re.compile(r" Please ensure that .*| SQLSTATE: \w+;?")
_TRACE = "Traceback (most recent call last):"


def as_pipeline_error(error: BaseException, doing: str) -> PipelineError:
    """Returns the PipelineError for an error of a job. `doing`: the step that failed."""
    if isinstance(error, PipelineError):
        return error
    texts = list(_texts(error))
    if any(NO_ROOM in text for text in texts) or getattr(error, "errno", None) == errno.ENOSPC:
        detail = max((found[0] for text in texts if (found := _DISK.search(text))), key=len, default=NO_ROOM)
        return PipelineError(f"{doing}: the disk is full ({detail})", AGAIN)
    if request := next((request for text in texts if (request := _request(text))), ""):
        return PipelineError(f"{doing}: the object store fails: {request}", STORE_AGAIN)
    doing = next((meaning for sign, meaning in SIGNS.items() if any(sign in text for text in texts)), doing)
    lines = [line for text in texts if (line := _line(text))]
    return PipelineError(f"{doing}: {lines[-1] if lines else type(error).__name__}")


def _request(text: str) -> str:
    """Returns the failed store request and its error; "" if the text is not about one."""
    plain = " ".join(re.sub(r"\x1b\[\d+m|↳", "", text).split())
    if (found := _REQUEST.search(plain)) is None:
        return ""
    method, address, retries, why = found.groups()
    return f"{method} {address.partition('?')[0]}{retries or ''}: {why[:200]}"


def _texts(error: BaseException) -> Iterator[str]:
    """Yields the messages of the error and its causes, in Python and then in Java, outermost first."""
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
    """Returns the first line, without leading class names and the trailing SQLSTATE; of a Python traceback, the last
    exception.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if _TRACE in text:
        lines = [line for line in _RAISED.findall(text) if _TRACE not in line][-1:] or lines
    return _NOISE.sub("", lines[0]).split(" SQLSTATE: ")[0].strip() if lines else ""


def first_line(error: Exception) -> str:
    """Returns the line of Spark's message that names the problem, with the next line if it ends in a colon."""
    message = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in str(message).splitlines() if line.strip()] or [type(error).__name__]
    return _ADVICE.sub("", " ".join(lines[: 2 if lines[0].endswith(":") else 1]))
