"""`python -m tests.zookeeper.model_server ZOO_CFG`: the model as a process, at the clientPort of a zoo.cfg."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from tests.zookeeper.model import ZooKeeperModel


async def serve(port: int) -> None:
    """Until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with ZooKeeperModel(tick_s=0.1).served(port=port) as address:
        print(f"ready {address}", flush=True)
        await stopping.wait()


if __name__ == "__main__":
    lines = dict(line.split("=", 1) for line in Path(sys.argv[1]).read_text().splitlines())
    asyncio.run(serve(int(lines["clientPort"])))
