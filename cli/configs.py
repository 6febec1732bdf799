"""`odradek configs`: describe and alter settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from odradek.broker.logging.printable import printable
from odradek.cli.errors import CommandError
from odradek.cli.options import add_bootstrap_server, assignments, command, not_negative, with_admin

if TYPE_CHECKING:
    from odradek.clients.admin.client import ConfigChange
    from odradek.protocol.wire_codes import ConfigResourceType

EXAMPLES = """  odradek configs describe --topic orders
  odradek configs describe --broker 0 --all
  odradek configs alter --topic orders --set retention.ms=3600000 --delete cleanup.policy
  odradek configs alter --group payments --set consumer.session.timeout.ms=50000
"""
SOURCES = {
    1: "topic",
    2: "dynamic broker",
    3: "dynamic cluster",
    4: "static broker",
    5: "default",
    6: "dynamic logger",
    7: "client metrics",
    8: "group",
}
DEFAULT_SOURCES = (4, 5)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `configs` and its actions."""
    summary = "describe and alter settings of topics, brokers and groups"
    parser = command(subparsers, "configs", summary, _help, examples=EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_describe(actions)
    _add_alter(actions)


def _help(arguments: argparse.Namespace) -> int:
    raise CommandError("configs needs an action: describe or alter")


def _add_resource(parser: argparse.ArgumentParser) -> None:
    resource = parser.add_mutually_exclusive_group(required=True)
    resource.add_argument("--topic", metavar="TOPIC", help="settings of a topic")
    resource.add_argument("--broker", type=not_negative, metavar="ID", help="settings of one broker")
    resource.add_argument("--cluster", action="store_true", help="cluster-wide default settings of brokers")
    resource.add_argument("--broker-logger", type=not_negative, metavar="ID", help="log levels of one broker")
    resource.add_argument("--group", metavar="GROUP", help="settings of a group")
    resource.add_argument("--client-metrics", metavar="NAME", help="settings of a subscription to client metrics")


def _resource(arguments: argparse.Namespace) -> tuple[ConfigResourceType, str]:
    from odradek.protocol.wire_codes import ConfigResourceType

    if arguments.topic is not None:
        return ConfigResourceType.TOPIC, arguments.topic
    if arguments.group is not None:
        return ConfigResourceType.GROUP, arguments.group
    if arguments.client_metrics is not None:
        return ConfigResourceType.CLIENT_METRICS, arguments.client_metrics
    if arguments.broker_logger is not None:
        return ConfigResourceType.BROKER_LOGGER, str(arguments.broker_logger)
    return ConfigResourceType.BROKER, "" if arguments.cluster else str(arguments.broker)


def _add_describe(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek configs describe --topic orders\n  odradek configs describe --broker 0 --all --json\n"
    parser = command(actions, "describe", "show settings", describe, examples=examples)
    _add_resource(parser)
    parser.add_argument("--all", action="store_true", help="include static settings and defaults")
    parser.add_argument("--json", action="store_true", help="print a JSON object keyed by name")
    add_bootstrap_server(parser)


def describe(arguments: argparse.Namespace) -> None:
    """Prints settings with their values and where they come from."""
    kind, name = _resource(arguments)
    configs = with_admin(arguments, lambda admin: admin.describe_configs(kind, name))
    shown = [one for one in configs if arguments.all or one.config_source not in DEFAULT_SOURCES]
    if arguments.json:
        print(json.dumps({one.name: _as_json(one) for one in shown}, indent=2))
        return
    for one in shown:
        value = "(hidden)" if one.is_sensitive else "(none)" if one.value is None else one.value
        print(f"{printable(one.name)}={printable(value)}\t{SOURCES.get(one.config_source, one.config_source)}")


def _as_json(config: Any) -> dict[str, Any]:
    return {
        "value": config.value,
        "source": SOURCES.get(config.config_source, config.config_source),
        "read_only": config.read_only,
        "sensitive": config.is_sensitive,
    }


def _add_alter(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = (
        "  odradek configs alter --topic orders --set retention.ms=3600000\n"
        "  odradek configs alter --cluster --delete log.retention.ms\n"
    )
    parser = command(actions, "alter", "change settings", alter, examples=examples)
    _add_resource(parser)
    pair = "NAME=VALUE"
    parser.add_argument(
        "--set", action="append", default=[], metavar=pair, dest="settings", help="set a value; may be repeated"
    )
    parser.add_argument("--delete", action="append", default=[], metavar="NAME", help="reset to the default")
    parser.add_argument("--append", action="append", default=[], metavar=pair, help="add to a list")
    parser.add_argument("--subtract", action="append", default=[], metavar=pair, help="remove from a list")
    parser.add_argument("--validate-only", action="store_true", help="only check whether the change is possible")
    add_bootstrap_server(parser)


def alter(arguments: argparse.Namespace) -> None:
    """Changes all the given settings, or none."""
    kind, name = _resource(arguments)
    changes = _changes(arguments)
    if not changes:
        raise CommandError("nothing to change: give --set, --delete, --append or --subtract")
    with_admin(arguments, lambda admin: admin.alter_configs(kind, name, changes, validate_only=arguments.validate_only))
    print("can be changed" if arguments.validate_only else "changed")


def _changes(arguments: argparse.Namespace) -> list[ConfigChange]:
    from odradek.protocol.wire_codes import ConfigOperation

    changes: list[ConfigChange] = []
    for option, texts, operation in (
        ("--set", arguments.settings, ConfigOperation.SET),
        ("--append", arguments.append, ConfigOperation.APPEND),
        ("--subtract", arguments.subtract, ConfigOperation.SUBTRACT),
    ):
        changes += [(name, operation, value) for name, value in assignments(texts, option).items()]
    changes += [(name, ConfigOperation.DELETE, None) for name in arguments.delete]
    return changes
