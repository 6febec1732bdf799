"""The cleaner process: `python -m odradek.storage.cleaner.worker`. It reads jobs from its standard input and writes
results to its standard output, as lines of JSON.

    input                         output
    a CleanJob, an array          ["progress", bytes] and ["group", base offset, [replaced ...], changed], any number
                                  of times, then ["done", end offset, stats]; or ["failed", kind, text] with the kind
                                  "disk" or "uncleanable"; or ["stopped"]
    "go" or "stop"                the process waits for one of them after each progress and group

The broker may send one "go" in advance, so that the process need not wait each time. The process ends when its input
ends, that is, when the broker ends. On Linux it is also killed together with the broker: the next broker removes
unfinished files and may write others of the same names before this process would read its input again.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable

from odradek.storage.cleaner.cleaner import clean_steps
from odradek.storage.cleaner.job import CleanDone, CleanedGroup, CleanJob, UncleanableLog
from odradek.storage.cleaner.messages import GO, STOP, Message, encode
from odradek.storage.files import Files, OsFiles

NICENESS = 5
PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""
PROGRESS_BYTES = 4 << 20
"""Bytes read and written between two exchanges with the broker, or an eighth of a small log."""


def serve(read_line: Callable[[], bytes], write: Callable[[bytes], object], files: Files) -> None:
    """Serves requests until the input ends."""
    while line := read_line():
        if line in (GO, STOP):
            continue  # sent in advance, for a job that was done already
        job = CleanJob.from_json(line)
        try:
            done = _clean(files, job, read_line, write)
        except UncleanableLog as error:
            write(encode(Message.FAILED, "uncleanable", str(error)))
        except OSError as error:
            write(encode(Message.FAILED, "disk", str(error)))
        else:
            if done is None:
                write(encode(Message.STOPPED))
            else:
                write(encode(Message.DONE, done.end_offset, done.stats.as_dict()))


def _clean(
    files: Files, job: CleanJob, read_line: Callable[[], bytes], write: Callable[[bytes], object]
) -> CleanDone | None:
    """Returns None if the broker stopped the job."""
    steps = clean_steps(files, job)
    report_from = min(PROGRESS_BYTES, sum(segment.size for segment in job.segments) // 8)
    unreported = 0
    try:
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                done: CleanDone = end.value
                return done
            if isinstance(step, CleanedGroup):
                write(encode(Message.GROUP, *step))
            else:
                unreported += step
                if unreported < report_from:
                    continue
                write(encode(Message.PROGRESS, unreported))
                unreported = 0
            if read_line() != GO:
                return None
    finally:
        steps.close()


def end_with_the_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    end_with_the_parent()
    os.nice(NICENESS)
    gc.disable()  # millions of keys, but no reference cycles
    source, target = sys.stdin.buffer, sys.stdout.buffer

    def write(line: bytes) -> None:
        target.write(line)
        target.flush()

    try:
        serve(source.readline, write, OsFiles())
    except (BrokenPipeError, KeyboardInterrupt):
        pass


if __name__ == "__main__":
    main()
