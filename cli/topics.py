"""`odradek topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from odradek.broker.logging.printable import printable
from odradek.cli.errors import CommandError
from odradek.cli.options import add_bootstrap_server, assignments, command, delete_each, positive, with_admin

if TYPE_CHECKING:
    from odradek.clients.admin.client import AdminClient

EXAMPLES = """  odradek topics create orders --partitions 3 --config retention.ms=86400000
  odradek topics list
  odradek topics describe orders
  odradek topics alter orders --partitions 6
  odradek topics delete orders
"""
DYNAMIC_TOPIC_CONFIG = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `topics` and its actions."""
    parser = command(subparsers, "topics", "create, list, describe, alter and delete topics", _help, examples=EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_create(actions)
    _add_list(actions)
    _add_describe(actions)
    _add_alter(actions)
    _add_delete(actions)


def _help(arguments: argparse.Namespace) -> int:
    raise CommandError("topics needs an action: create, list, describe, alter or delete")


def _add_create(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = (
        "  odradek topics create orders --partitions 3\n  odradek topics create log --config cleanup.policy=compact\n"
    )
    parser = command(actions, "create", "create a topic", create, examples=examples)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--partitions", type=positive, metavar="N", help="default: the broker's num.partitions")
    parser.add_argument(
        "--replication-factor", type=positive, metavar="N", help="default: the broker's default.replication.factor"
    )
    parser.add_argument(
        "--config", action="append", default=[], metavar="NAME=VALUE", help="a setting; may be repeated"
    )
    parser.add_argument("--if-not-exists", action="store_true", help="ignore a topic that already exists")
    parser.add_argument("--validate-only", action="store_true", help="only check whether the topic can be created")
    add_bootstrap_server(parser)


def create(arguments: argparse.Namespace) -> None:
    """Creates a topic."""
    from odradek.broker.metadata.new_topic import UNSET, NewTopic
    from odradek.protocol.errors import ErrorCode, ProtocolError

    topic = NewTopic(
        arguments.topic,
        arguments.partitions or UNSET,
        arguments.replication_factor or UNSET,
        configs=assignments(arguments.config, "--config"),
    )
    try:
        with_admin(arguments, lambda admin: admin.create_topic(topic, validate_only=arguments.validate_only))
    except ProtocolError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not arguments.if_not_exists:
            raise
        print(f"{arguments.topic} already exists")
        return
    print(f"{arguments.topic} {'can be created' if arguments.validate_only else 'created'}")


def _add_list(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = command(actions, "list", "list the topics", list_topics, examples="  odradek topics list --json\n")
    parser.add_argument("--exclude-internal", action="store_true", help="omit Kafka's internal topics")
    parser.add_argument("--json", action="store_true", help="print a JSON array of names")
    add_bootstrap_server(parser)


def list_topics(arguments: argparse.Namespace) -> None:
    """Prints the names of all topics, one per line."""
    topics = with_admin(arguments, lambda admin: admin.topics())
    names = [topic.name for topic in topics if not (arguments.exclude_internal and topic.is_internal)]
    if arguments.json:
        print(json.dumps(names))
        return
    for name in names:
        print(printable(name or ""))


def _add_describe(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek topics describe\n  odradek topics describe orders --json\n"
    parser = command(actions, "describe", "describe topics and their partitions", describe, examples=examples)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all")
    parser.add_argument("--json", action="store_true", help="print a JSON array")
    add_bootstrap_server(parser)


def describe(arguments: argparse.Namespace) -> None:
    """Prints topics with their partitions and settings."""
    described = with_admin(arguments, lambda admin: _describe(admin, arguments.topics))
    if arguments.json:
        print(json.dumps(described, indent=2))
        return
    for topic in described:
        settings = printable(",".join(f"{name}={value}" for name, value in topic["configs"].items()))
        topic_name = printable(topic["name"])
        print(
            f"Topic: {topic_name}\tTopicId: {topic['topic_id']}\tPartitionCount: {len(topic['partitions'])}"
            f"\tReplicationFactor: {topic['replication_factor']}\tConfigs: {settings}"
        )
        for partition in topic["partitions"]:
            leader = "none" if partition["leader"] < 0 else partition["leader"]
            replicas, isr = (",".join(map(str, partition[key])) for key in ("replicas", "isr"))
            print(
                f"\tTopic: {topic_name}\tPartition: {partition['partition']}\tLeader: {leader}"
                f"\tReplicas: {replicas}\tIsr: {isr}"
            )


async def _describe(admin: AdminClient, names: list[str]) -> list[dict[str, Any]]:
    from odradek.broker.metadata.kafka_uuid import uuid_text
    from odradek.protocol.wire_codes import ConfigResourceType

    topics = [await admin.topic(name) for name in names] if names else await admin.topics()
    described = []
    for topic in topics:
        name = topic.name or ""
        configs = await admin.describe_configs(ConfigResourceType.TOPIC, name)
        partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
        described.append(
            {
                "name": name,
                "topic_id": uuid_text(topic.topic_id),
                "replication_factor": len(partitions[0].replica_nodes) if partitions else 0,
                "configs": {one.name: one.value for one in configs if one.config_source == DYNAMIC_TOPIC_CONFIG},
                "partitions": [
                    {
                        "partition": partition.partition_index,
                        "leader": partition.leader_id,
                        "leader_epoch": partition.leader_epoch,
                        "replicas": partition.replica_nodes,
                        "isr": partition.isr_nodes,
                    }
                    for partition in partitions
                ],
            }
        )
    return described


def _add_alter(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek topics alter orders --partitions 6\n"
    description = "Raise a topic's number of partitions. Use `odradek configs alter` to change its settings."
    parser = command(actions, "alter", "add partitions to a topic", alter, description=description, examples=examples)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--partitions", type=positive, required=True, metavar="N", help="the new total number of partitions"
    )
    add_bootstrap_server(parser)


def alter(arguments: argparse.Namespace) -> None:
    """Raises a topic's number of partitions."""
    from odradek.broker.metadata.new_topic import NewPartitions

    new_partitions = NewPartitions(arguments.topic, arguments.partitions)
    with_admin(arguments, lambda admin: admin.create_partitions(new_partitions))
    print(f"{arguments.topic} has {arguments.partitions} partitions")


def _add_delete(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek topics delete orders returns\n"
    parser = command(actions, "delete", "delete topics and their records", delete, examples=examples)
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--if-exists", action="store_true", help="ignore topics that do not exist")
    add_bootstrap_server(parser)


def delete(arguments: argparse.Namespace) -> None:
    """Deletes topics."""
    from odradek.protocol.errors import ErrorCode

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with_admin(arguments, lambda admin: delete_each(arguments.topics, admin.delete_topic, unknown, arguments.if_exists))
