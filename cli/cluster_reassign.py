"""`odradek cluster reassign`: move the replicas of topics to other brokers, or change how many there are."""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING

from odradek.broker.logging.printable import printable
from odradek.cli.errors import CommandError
from odradek.cli.options import add_bootstrap_server, command, positive, with_admin

if TYPE_CHECKING:
    from odradek.clients.admin.client import AdminClient
    from odradek.protocol.messages.metadata import MetadataResponse
    from odradek.protocol.topic_partition import TopicPartition

DESCRIPTION = """Move the replicas of topics to these brokers, spread over them as Kafka spreads those of a new topic.
The old replicas serve until the new ones are in sync. It works with Apache Kafka, too."""

EXAMPLES = """  odradek cluster reassign orders --brokers 2,3,4 --wait
  odradek cluster reassign orders --brokers 1,2,3 --replication-factor 2
  odradek cluster reassign orders --cancel
"""
PAUSE_S = 0.2

Replicas = tuple[int, ...]


def add_parser(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `reassign` to the actions of `cluster`."""
    parser = command(
        actions, "reassign", "move replicas to other brokers", reassign, description=DESCRIPTION, examples=EXAMPLES
    )
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--brokers", type=_broker_ids, metavar="ID,ID,...", help="the brokers that get the replicas")
    what.add_argument("--cancel", action="store_true", help="cancel the reassignments of these topics")
    parser.add_argument(
        "--replication-factor", type=positive, metavar="N", help="replicas of each partition (default: as many as now)"
    )
    parser.add_argument("--wait", action="store_true", help="return when all new replicas are in sync")
    add_bootstrap_server(parser)


def _broker_ids(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of broker ids: 1,2,3")
    return list(dict.fromkeys(map(int, parts)))


def reassign(arguments: argparse.Namespace) -> None:
    """Begins or cancels reassignments, and prints each."""
    if arguments.cancel and (arguments.replication_factor or arguments.wait):
        raise CommandError("--cancel takes neither --replication-factor nor --wait")
    with_admin(arguments, lambda admin: _cancel(admin, arguments) if arguments.cancel else _begin(admin, arguments))


async def _begin(admin: AdminClient, arguments: argparse.Namespace) -> None:
    topics = [await admin.topic(name) for name in arguments.topics]
    racks = await _racks(admin, arguments.brokers)
    targets: dict[TopicPartition, Replicas] = {}
    for topic in topics:
        targets.update(_assigned(topic, racks, arguments.replication_factor))
    before = _replicas(topics)
    await _alter(admin, targets)
    for key, replicas in targets.items():
        print(printable(f"{key}: {_listed(before[key])} -> {_listed(replicas)}"))
    if arguments.wait:
        await _finished(admin, targets.keys())
        print("all replicas are in sync")


async def _finished(admin: AdminClient, keys: Set[TopicPartition]) -> None:
    while True:
        if not keys & (await admin.reassignments()).keys():
            return
        await asyncio.sleep(PAUSE_S)


async def _cancel(admin: AdminClient, arguments: argparse.Namespace) -> None:
    under_way = [key for key in await admin.reassignments() if key.topic in arguments.topics]
    if not under_way:
        raise CommandError("no reassignment of these topics is under way")
    await _alter(admin, dict.fromkeys(under_way))
    for key in under_way:
        print(printable(f"{key}: canceled"))


async def _alter(admin: AdminClient, targets: Mapping[TopicPartition, Replicas | None]) -> None:
    """Raises CommandError, which names each partition that failed."""
    if failed := await admin.alter_reassignments(targets):
        raise CommandError("; ".join(f"{key}: {error}" for key, error in sorted(failed.items())))


async def _racks(admin: AdminClient, brokers: Sequence[int]) -> dict[int, str]:
    """Returns the rack of each broker; the same for all unless each of them has one. Raises CommandError."""
    live = {broker.broker_id: broker.rack for broker in (await admin.describe_cluster()).brokers}
    if missing := [broker for broker in brokers if broker not in live]:
        raise CommandError(f"the cluster has no broker {_listed(missing)}: it has {_listed(sorted(live))}")
    racks = [live[broker] for broker in brokers]
    return {broker: rack if None not in racks and rack else "" for broker, rack in zip(brokers, racks, strict=True)}


def _assigned(
    topic: MetadataResponse.MetadataResponseTopic, racks: Mapping[int, str], replication_factor: int | None
) -> dict[TopicPartition, Replicas]:
    from odradek.broker.controller.assignment import assign_replicas
    from odradek.protocol.topic_partition import TopicPartition

    name, now = topic.name or "", topic.partitions
    factor = replication_factor or len(now[0].replica_nodes)
    if factor > len(racks):
        raise CommandError(f"{name} is to have {factor} replicas: name as many brokers")
    assigned = assign_replicas(racks, len(now), factor, random.Random())  # nosec B311 # spreads replicas
    return {TopicPartition(name, partition): replicas for partition, replicas in assigned.items()}


def _replicas(topics: Sequence[MetadataResponse.MetadataResponseTopic]) -> dict[TopicPartition, Sequence[int]]:
    from odradek.protocol.topic_partition import TopicPartition

    return {
        TopicPartition(topic.name or "", one.partition_index): one.replica_nodes
        for topic in topics
        for one in topic.partitions
    }


def _listed(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
