"""The broker's end of the process that cleans logs (storage/cleaner/worker): started when there is something to
clean, ended when there is nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import odradek
from odradek.storage.cleaner.cleaner import Progress
from odradek.storage.cleaner.job import CleanDone, CleanedGroup, CleanJob, CleanStats, UncleanableLog
from odradek.storage.cleaner.messages import GO, STOP, Message, decode

ROOT = Path(odradek.__file__).parent.parent
PROGRAM = "import sys; sys.path.append(sys.argv.pop()); from odradek.storage.cleaner.worker import main; main()"
"""Finds the broker's own package, wherever the broker was started and whatever folders lie there (-P)."""
LAST_WORDS_BYTES = 2000


class CleanerProcess:
    """One process, which does one job at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._complaint: asyncio.Task[str] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def clean(self, job: CleanJob) -> AsyncGenerator[Progress | CleanDone, None]:
        """What the process tells of its work. Whoever stops listening (`aclose`) stops the work.

        Raises UncleanableLog, OSError, and ProcessLookupError when the process has ended before its work did.
        """
        process = self._process or await self._start()
        finished = False
        try:
            await self._send(process, job.to_json().encode() + b"\n" + GO)
            while not finished:
                kind, values = await self._hear(process)
                finished = kind in _LAST_WORDS
                if kind is Message.FAILED:
                    raise UncleanableLog(values[1]) if values[0] == "uncleanable" else OSError(values[1])
                yield _decoded(kind, values)
                if not finished:
                    await self._send(process, GO)
        except (asyncio.CancelledError, ProcessLookupError):
            await self.kill()
            raise
        except GeneratorExit:
            if not finished:
                await self._stop_work(process)
            raise

    async def _start(self) -> Process:
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-c",
                PROGRAM,
                str(ROOT),
                stdin=PIPE,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
            )
        )
        try:
            self._process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._process = await starting
            await self.kill()
            raise
        assert self._process.stderr is not None
        self._complaint = asyncio.ensure_future(_complaint(self._process.stderr))
        return self._process

    async def _send(self, process: Process, line: bytes) -> None:
        assert process.stdin is not None
        try:
            if process.stdin.is_closing():  # uvloop raises RuntimeError where asyncio's writes go nowhere
                raise BrokenPipeError
            process.stdin.write(line)
            await process.stdin.drain()
        except ConnectionError as error:
            raise ProcessLookupError("the process that cleans has ended") from error

    async def _hear(self, process: Process) -> tuple[Message, list[Any]]:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            complaint = "" if self._complaint is None else await self._complaint
            raise ProcessLookupError(f"the process that cleans has ended: {complaint}".removesuffix(": "))
        return decode(line)

    async def _stop_work(self, process: Process) -> None:
        """When it says that it has stopped, the files that it was writing are gone."""
        try:
            await self._send(process, STOP)
            while (await self._hear(process))[0] not in _LAST_WORDS:
                pass
        except (asyncio.CancelledError, ProcessLookupError):
            await self.kill()

    async def stop(self) -> None:
        """Ends the process, which has nothing to do."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await self._end_of(process)
            self._process = None
        except asyncio.CancelledError:
            await self.kill()
            raise

    async def kill(self) -> None:
        """Ends it whatever it does. The files that it was writing are removed at the log's next start."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            assert process.stdin is not None
            process.stdin.close()
            await self._end_of(process)

    async def _end_of(self, process: Process) -> None:
        """Waits until it has ended and its pipes are closed."""
        assert process.stdout is not None
        await process.stdout.read()
        if self._complaint is not None:
            await self._complaint
        await process.wait()
        await asyncio.sleep(0)


async def _complaint(stderr: asyncio.StreamReader) -> str:
    """The last line that a process writes to its standard error; reads until the end, so that it never blocks."""
    last = b""
    while more := await stderr.read(LAST_WORDS_BYTES):
        last = (last + more)[-LAST_WORDS_BYTES:]
    return last.decode(errors="replace").strip().rpartition("\n")[2]


_LAST_WORDS = (Message.DONE, Message.FAILED, Message.STOPPED)


def _decoded(kind: Message, values: list[Any]) -> Progress | CleanDone:
    if kind is Message.DONE:
        return CleanDone(values[0], CleanStats.from_dict(values[1]))
    if kind is Message.GROUP:
        return CleanedGroup(*values)
    return int(values[0])
