"""`odradek cluster migrate`: a single node becomes the first broker of a cluster on ZooKeeper."""

from __future__ import annotations

import argparse
import asyncio
import os

from odradek.cli.errors import CommandError
from odradek.cli.options import command

DESCRIPTION = """Copy the metadata of a stopped single node to ZooKeeper: its topics, their settings, and ids. With
zookeeper.connect, the node then starts with the same data directory, and all records, offsets, groups and transactions
in it. Without, it does not start any more. docs/cluster.md says how to go on.

Where ZooKeeper has entries of another cluster, or a broker runs, nothing is written. If the command is interrupted, run
it again. Run it as the user of the broker."""

EXAMPLES = """  odradek cluster migrate --config server.properties --dry-run
  odradek cluster migrate --config server.properties
  odradek cluster migrate --data-dir ./data --zookeeper-connect node1:2181,node2:2181,node3:2181/odradek
"""


def add_parser(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `migrate` to the actions of `cluster`."""
    parser = command(
        actions, "migrate", "copy a single node to ZooKeeper", migrate, description=DESCRIPTION, examples=EXAMPLES
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="the server.properties with which the broker will start: log.dirs, and zookeeper.* with login and TLS",
    )
    parser.add_argument("--data-dir", metavar="DIR", help="directory of the logs: log.dirs")
    parser.add_argument("--zookeeper-connect", metavar="HOST:PORT,.../PATH", help="zookeeper.connect")
    parser.add_argument("--dry-run", action="store_true", help="only compare, and write nothing")


def migrate(arguments: argparse.Namespace) -> None:
    """Prints what it does."""
    from random import SystemRandom

    from odradek.broker.logging.quiet_logs import QUIET_LOGS
    from odradek.broker.settings.config import load_config
    from odradek.cli.migration import migrate as migration
    from odradek.storage.files import OsFiles
    from odradek.timer import SystemClock

    if arguments.config is None and arguments.data_dir is None:
        raise CommandError("name the node's data: --config server.properties, or --data-dir")
    place = arguments.zookeeper_connect
    settings = [] if place is None else [f"zookeeper.connect={place}"]
    config = load_config(arguments.config, data_dir=arguments.data_dir, settings=settings, environment=os.environ)
    if config.zookeeper_connect is None:
        raise CommandError("name ZooKeeper: zookeeper.connect in the file of --config, or --zookeeper-connect")
    is_named = arguments.config is not None and config.broker_id >= 0
    with QUIET_LOGS.shown(), config.provided.hiding():
        asyncio.run(
            migration.migrate(
                config,
                broker_id=config.broker_id if is_named else None,
                files=OsFiles(),
                clock=SystemClock(),
                source=SystemRandom(),
                say=lambda line: print(line, flush=True),
                is_dry_run=arguments.dry_run,
            )
        )
