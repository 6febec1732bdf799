"""The broker's side of the process that cleans logs (storage/cleaner/worker). It is started when a log is to be
cleaned, and stopped when no log is left.
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
"""Imports the broker's own package, regardless of the working directory and its contents (-P)."""
STDERR_BYTES = 2000


class CleanerProcess:
    """A cleaner process, which runs one job at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._stderr_line: asyncio.Task[str] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def clean(self, job: CleanJob) -> AsyncGenerator[Progress | CleanDone, None]:
        """Runs the job and yields the messages of the process. Closing the generator (`aclose`) stops the job.

        Raises UncleanableLog, OSError, and ProcessLookupError if the process exits before the job ends.
        """
        process = self._process or await self._start()
        finished = False
        try:
            await self._send(process, job.to_json().encode() + b"\n" + GO)
            while not finished:
                kind, values = await self._receive(process)
                finished = kind in _FINAL_MESSAGES
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
        self._stderr_line = asyncio.ensure_future(_stderr_line(self._process.stderr))
        return self._process

    async def _send(self, process: Process, line: bytes) -> None:
        assert process.stdin is not None
        try:
            if process.stdin.is_closing():  # a write would raise RuntimeError with uvloop, and be ignored by asyncio
                raise BrokenPipeError
            process.stdin.write(line)
            await process.stdin.drain()
        except ConnectionError as error:
            raise await self._exited() from error

    async def _receive(self, process: Process) -> tuple[Message, list[Any]]:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise await self._exited()
        return decode(line)

    async def _exited(self) -> ProcessLookupError:
        stderr_line = "" if self._stderr_line is None else await self._stderr_line
        return ProcessLookupError(f"the cleaner process has exited: {stderr_line}".removesuffix(": "))

    async def _stop_work(self, process: Process) -> None:
        """Stops the job. When the process reports that it has stopped, it has removed the files that it was writing."""
        try:
            await self._send(process, STOP)
            while (await self._receive(process))[0] not in _FINAL_MESSAGES:
                pass
        except (asyncio.CancelledError, ProcessLookupError):
            await self.kill()

    async def stop(self) -> None:
        """Stops the idle process."""
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
        """Kills the process. The files that it was writing are removed when the log is next loaded."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            assert process.stdin is not None
            process.stdin.close()
            await self._end_of(process)

    async def _end_of(self, process: Process) -> None:
        """Waits until the process has exited and its pipes are closed."""
        assert process.stdout is not None
        await process.stdout.read()
        if self._stderr_line is not None:
            await self._stderr_line
        await process.wait()
        await asyncio.sleep(0)


async def _stderr_line(stderr: asyncio.StreamReader) -> str:
    """Returns the last line of a process's standard error. Reads to the end, so that the process never blocks."""
    last = b""
    while more := await stderr.read(STDERR_BYTES):
        last = (last + more)[-STDERR_BYTES:]
    return last.decode(errors="replace").strip().rpartition("\n")[2]


_FINAL_MESSAGES = (Message.DONE, Message.FAILED, Message.STOPPED)


def _decoded(kind: Message, values: list[Any]) -> Progress | CleanDone:
    if kind is Message.DONE:
        return CleanDone(values[0], CleanStats.from_dict(values[1]))
    if kind is Message.GROUP:
        return CleanedGroup(*values)
    return int(values[0])
