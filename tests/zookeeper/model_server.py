"""`python -m tests.zookeeper.model_server [ZOO_CFG]`: the model as a process.

It listens at the clientPort of a zoo.cfg, or at a free port, and prints `ready HOST:PORT`.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.zookeeper.model import ZooKeeperModel


async def serve(port: int) -> None:
    """Until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with ZooKeeperModel(tick_s=0.1).served(port=port) as address:
        print(f"ready {address}", flush=True)
        await stopping.wait()


def main(arguments: Sequence[str]) -> None:
    lines = Path(arguments[0]).read_text().splitlines() if arguments else ()
    settings = dict(line.split("=", 1) for line in lines)
    asyncio.run(serve(int(settings.get("clientPort", "0"))))


if __name__ == "__main__":
    main(sys.argv[1:])
