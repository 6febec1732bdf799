"""The process that cleans: `python -m odradek.storage.cleaner.worker`. It reads what to clean and writes what it has
done, in lines of JSON over its standard input and output.

    it is told                    it answers
    a CleanJob, an array          ["progress", bytes] and ["group", base offset, [replaced ...], changed], as often as
                                  it takes, then ["done", end offset, stats]; or ["failed", kind, text] with the kind
                                  "disk" or "uncleanable"; or ["stopped"]
    "go" or "stop"                after each progress and group it waits for one of them

Whoever starts it may say "go" once in advance, so that it need not wait each time. The end of its input, which is the
end of the broker, is the end of it too. On Linux it is killed with the broker, at once: the next broker removes the
files that are not finished, and may be writing others of the same names when this process would read its next word.
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
"""Read and written between two words with the broker, or an eighth of a small log."""


def serve(read_line: Callable[[], bytes], write: Callable[[bytes], object], files: Files) -> None:
    """Until the input ends."""
    while line := read_line():
        if line in (GO, STOP):
            continue  # said in advance, of a job that was done already
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
    """None: it was stopped."""
    steps = clean_steps(files, job)
    worth_telling = min(PROGRESS_BYTES, sum(segment.size for segment in job.segments) // 8)
    untold = 0
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
                untold += step
                if untold < worth_telling:
                    continue
                write(encode(Message.PROGRESS, untold))
                untold = 0
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
    gc.disable()  # millions of keys and no cycles
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
