"""One process of a local cluster. Its output goes to a file.

It is in a session of its own: Ctrl-C reaches only the program that runs the cluster, which then ends the processes in
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

LINES = 10
"""How much of a log an error quotes."""
RETRY_S = 0.05
SILENT_S = 2.0
"""How long a process may take to end before there is more to say of it."""


class NotStarted(Exception):
    """A process did not become ready; the message has the end of its log."""


class RunningProcess:
    """Made by `start`. `name` is for messages."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @classmethod
    async def start(cls, name: str, command: Sequence[str], log: Path) -> RunningProcess:
        """Raises NotStarted if there is no such program."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise NotStarted(f"{name}: cannot run {command[0]}: {error.strerror}") from error
        return cls(name, process, log)

    async def listens(self, port: int, timeout_s: float) -> None:
        """Returns when somebody accepts connections on this port of 127.0.0.1. Raises NotStarted if the process has
        ended, or after `timeout_s`.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while self._process.returncode is None:
                    try:
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                    except OSError:
                        await asyncio.sleep(RETRY_S)
                    else:
                        writer.close()
                        return
        except TimeoutError as error:
            raise NotStarted(f"{self.name} does not answer on port {port}; {self._end_of_log()}") from error
        raise NotStarted(f"{self.name} has ended with status {self._process.returncode}; {self._end_of_log()}")

    async def ended(self) -> str:
        """Waits for its end, and returns a sentence that reports it."""
        status = await self._process.wait()
        return f"{self.name} has ended with status {status}; {self._end_of_log()}"

    async def end(self, timeout_s: float, say: Callable[[str], object]) -> None:
        """SIGTERM, and SIGKILL after `timeout_s`. Says what it waits for."""
        if self._process.returncode is None:
            say(f"ending {self.name}")
            self._process.terminate()
        if await self._has_ended(SILENT_S):
            return
        say(f"waiting for {self.name}, at most {timeout_s:g} s; its log is {self.log}")
        if not await self._has_ended(timeout_s - SILENT_S):
            say(f"{self.name} has not ended: killing it")
            self._process.kill()
            await self._process.wait()

    async def _has_ended(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def _end_of_log(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LINES:]
        return "\n  ".join((f"the end of {self.log}:", *lines))
