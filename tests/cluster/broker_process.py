"""A broker of a cluster as a process: `odradek serve` with the store of another process.

python -m tests.cluster.broker_process --store HOST:PORT --session-timeout-ms N [options of `odradek serve`]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from odradek.broker.serve import add_arguments, run
from tests.cluster.socket_store import SocketStore


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", required=True)
    parser.add_argument("--session-timeout-ms", type=int, required=True)
    add_arguments(parser)
    arguments = parser.parse_args(argv)
    return run(arguments, lambda *_: SocketStore(arguments.store, arguments.session_timeout_ms))


if __name__ == "__main__":
    sys.exit(main())
