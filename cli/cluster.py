"""`odradek cluster`: show brokers, controller, leaders, in-sync replicas and reassignments, once or as they change.

Other files have the actions that move replicas (cluster_reassign.py), configure a new cluster (cluster_init.py), and
make one of a single node (cluster_migrate.py).
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from odradek.cli import cluster_init, cluster_migrate, cluster_reassign
from odradek.cli.cluster_lines import cluster_lines, reason_lines
from odradek.cli.errors import CommandError
from odradek.cli.options import add_bootstrap_server, command, positive, with_admin

if TYPE_CHECKING:
    from odradek.clients.admin.client import AdminClient
    from odradek.clients.admin.missing_replicas import Reasons
    from odradek.clients.admin.overview import ClusterOverview, PartitionOverview

EXAMPLES = """  odradek cluster describe
  odradek cluster describe --problems
  odradek cluster watch
  odradek cluster reassign orders --brokers 2,3,4
  odradek cluster init --nodes node1,node2,node3
  odradek cluster migrate --config server.properties
"""
PATIENCE_S = 2.0
"""How long `describe` waits for a controller that reports reassignments, and for each broker with replicas out of
sync."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `cluster` and its actions."""
    parser = command(
        subparsers,
        "cluster",
        "show brokers, leaders and in-sync replicas, move replicas, configure a cluster",
        _help,
        examples=EXAMPLES,
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_describe(actions)
    _add_watch(actions)
    cluster_reassign.add_parser(actions)
    cluster_init.add_parser(actions)
    cluster_migrate.add_parser(actions)


def _help(arguments: argparse.Namespace) -> int:
    raise CommandError("cluster needs an action: describe, watch, reassign, init or migrate")


def _add_describe(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek cluster describe\n  odradek cluster describe --problems\n  odradek cluster describe --json\n"
    description = (
        "Show all brokers, the controller, and each partition with its leader and its in-sync replicas;\n"
        "and why other replicas are not in sync."
    )
    parser = command(actions, "describe", "show the cluster", describe, description=description, examples=examples)
    parser.add_argument(
        "--problems",
        action="store_true",
        help="only the partitions that are offline, under-replicated or being reassigned",
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_bootstrap_server(parser)


def describe(arguments: argparse.Namespace) -> None:
    """Prints the state of the cluster."""
    found, reasons = with_admin(arguments, _described)
    partitions = [one for one in found.partitions.values() if one.problems or not arguments.problems]
    if arguments.json:
        print(json.dumps(_as_json(found, partitions, reasons), indent=2))
        return
    for line in (*cluster_lines(found, partitions), *reason_lines(reasons)):
        print(line)


async def _described(admin: AdminClient) -> tuple[ClusterOverview, Reasons]:
    from odradek.clients.admin.missing_replicas import why_out_of_sync
    from odradek.clients.admin.overview import overview

    found = await overview(admin, patience_s=PATIENCE_S)
    return found, await why_out_of_sync(admin, found, patience_s=PATIENCE_S)


def _add_watch(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = (
        "  odradek cluster watch\n  odradek cluster watch --interval-ms 200\n  odradek cluster watch > changes.txt\n"
    )
    description = (
        "Show the cluster, and what changes in it, until it is interrupted. On a terminal, brokers and the partitions\n"
        "with problems stay in sight above the last changes; elsewhere, each change is a line."
    )
    parser = command(
        actions, "watch", "show the cluster as it changes", watch, description=description, examples=examples
    )
    parser.add_argument(
        "--interval-ms", type=positive, default=1000, metavar="MS", help="how often to look (default 1000)"
    )
    parser.add_argument("--times", type=positive, metavar="N", help="look N times, then end")
    add_bootstrap_server(parser)


def watch(arguments: argparse.Namespace) -> None:
    """Shows changes until it is interrupted."""
    import sys

    from odradek.cli.cluster_watch import Lines, Screen, look_again

    display = Screen(sys.stdout) if sys.stdout.isatty() else Lines(sys.stdout)
    with_admin(arguments, lambda admin: look_again(admin, display, arguments.interval_ms / 1000, arguments.times))


def _as_json(found: ClusterOverview, partitions: list[PartitionOverview], reasons: Reasons) -> dict[str, Any]:
    return {
        "cluster_id": found.cluster_id,
        "controller": None if found.controller < 0 else found.controller,
        "topics": found.topics,
        "partition_count": len(found.partitions),
        "offline": found.offline,
        "under_replicated": found.under_replicated,
        "reassigned": found.reassigned if found.knows_reassignments else None,
        "brokers": [broker._asdict() for broker in found.brokers.values()],
        "partitions": [
            {
                "topic": partition.key.topic,
                "partition": partition.key.partition,
                "leader": None if partition.is_offline else partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "adding": list(partition.adding),
                "removing": list(partition.removing),
                "problems": partition.problems,
            }
            for partition in partitions
        ],
        "out_of_sync": [
            {"broker": broker, "reason": reason, "partitions": [list(key) for key in keys]}
            for (broker, reason), keys in reasons.items()
        ],
    }
