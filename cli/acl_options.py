"""The options of `odradek acls`, with the names of kafka-acls, and the ACLs and filters that they mean.

    (A) Resources are --topic, --group, --transactional-id, --delegation-token and --user-principal, each with a name or
        *, and --cluster. All of them get the same entries.
    (B) Each of --allow-principal with each of --allow-host and each of --operation is an entry that allows; likewise
        with --deny-principal and --deny-host. The default of hosts is *, that of operations All.
    (C) --producer is Write, Describe and Create on the topics, Write and Describe on the transactional ids, and with
        --idempotent IdempotentWrite on the cluster. --consumer is Read and Describe on the topics, Read on the groups.

Source: Kafka's `AclCommand`, `AclEntry.supportedOperations`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek.cli.errors import CommandError
from odradek.clients.admin.acls import Acl, AclFilter
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType

CLUSTER_NAME = "kafka-cluster"
ANYWHERE = "*"
RESOURCES = {
    "topic": AclResourceType.TOPIC,
    "group": AclResourceType.GROUP,
    "transactional_id": AclResourceType.TRANSACTIONAL_ID,
    "delegation_token": AclResourceType.DELEGATION_TOKEN,
    "user_principal": AclResourceType.USER,
}
"""The type of resource for each option, which stands here as argparse stores it."""
_O = AclOperation
OPERATIONS: Mapping[AclResourceType, tuple[AclOperation, ...]] = {
    AclResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    AclResourceType.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
    AclResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    AclResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
"""The operations that each type of resource has, besides ALL."""
BY_NAME = {each.name.replace("_", "").lower(): each for each in AclOperation if each not in (_O.UNKNOWN, _O.ANY)}


class Resource(NamedTuple):
    """A resource of the options."""

    type: AclResourceType
    name: str


def operation(text: str) -> AclOperation:
    """argparse type: an operation, as kafka-acls writes it (AlterConfigs), in any case."""
    found = BY_NAME.get(text.replace("_", "").lower())
    if found is None:
        names = ", ".join(shown(each) for each in BY_NAME.values())
        raise argparse.ArgumentTypeError(f"{text!r} is not one of {names}")
    return found


def principal(text: str) -> str:
    """argparse type: TYPE:NAME."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not TYPE:NAME, as User:alice")
    return text


def shown(value: AclOperation | AclPatternType | AclPermissionType | AclResourceType) -> str:
    """The name as kafka-acls takes it: AlterConfigs."""
    return "".join(word.capitalize() for word in value.name.split("_"))


def add_resources(parser: argparse.ArgumentParser, pattern_types: Iterable[AclPatternType]) -> None:
    """Adds the options of (A), and --resource-pattern-type."""
    group = parser.add_argument_group("resources", "each but --cluster may be repeated; a name may be *")
    for name in RESOURCES:
        group.add_argument(f"--{name.replace('_', '-')}", action="append", default=[], metavar="NAME")
    group.add_argument("--cluster", action="store_true", help="the cluster itself")
    group.add_argument(
        "--resource-pattern-type",
        type=str.upper,
        choices=[each.name for each in pattern_types],
        default=AclPatternType.LITERAL.name,
        metavar="TYPE",
        help=f"{', '.join(each.name.lower() for each in pattern_types)} (default literal)",
    )


def add_entries(parser: argparse.ArgumentParser) -> None:
    """Adds the options of (B) and (C)."""
    group = parser.add_argument_group("who may do what", "each may be repeated")
    for permission in ("allow", "deny"):
        group.add_argument(
            f"--{permission}-principal", action="append", default=[], type=principal, metavar="TYPE:NAME"
        )
        group.add_argument(f"--{permission}-host", action="append", default=[], metavar="ADDRESS", help="default: *")
    group.add_argument("--operation", action="append", default=[], type=operation, metavar="NAME", help="default: All")
    roles = parser.add_argument_group("roles, instead of --operation")
    roles.add_argument("--producer", action="store_true", help="what a producer needs of topics")
    roles.add_argument("--idempotent", action="store_true", help="with --producer: it is idempotent")
    roles.add_argument("--consumer", action="store_true", help="what a consumer needs of topics and groups")


def resources(arguments: argparse.Namespace) -> list[Resource]:
    """The resources of the options, none if there are none."""
    found = [Resource(type_, name) for option, type_ in RESOURCES.items() for name in getattr(arguments, option)]
    return [*found, Resource(AclResourceType.CLUSTER, CLUSTER_NAME)] if arguments.cluster else found


def new_acls(arguments: argparse.Namespace) -> list[Acl]:
    """The ACLs that the options mean. Raises CommandError."""
    if not arguments.allow_principal and not arguments.deny_principal:
        raise CommandError("say who: --allow-principal or --deny-principal")
    return list(dict.fromkeys(_acls(arguments)))


def filters_to_remove(arguments: argparse.Namespace) -> list[AclFilter]:
    """What selects the ACLs that the options mean; without an entry, all of the resources. Raises CommandError."""
    if arguments.allow_principal or arguments.deny_principal:
        return [AclFilter(*acl) for acl in dict.fromkeys(_acls(arguments))]
    if arguments.operation or arguments.producer or arguments.consumer:
        raise CommandError("say whose: --allow-principal or --deny-principal")
    named = _named(arguments)
    return [AclFilter(each.type, each.name, AclPatternType[arguments.resource_pattern_type]) for each in named]


def filters_to_list(arguments: argparse.Namespace) -> list[AclFilter]:
    """What selects the ACLs of the resources and principals of the options, or of all."""
    pattern_type = AclPatternType[arguments.resource_pattern_type]
    named: list[AclFilter] = [AclFilter(each.type, each.name, pattern_type) for each in resources(arguments)]
    return [each._replace(principal=who) for each in named or [AclFilter()] for who in arguments.principal or [None]]


def _named(arguments: argparse.Namespace) -> list[Resource]:
    named = resources(arguments)
    if not named:
        options = ", ".join(f"--{each.replace('_', '-')}" for each in RESOURCES)
        raise CommandError(f"name a resource: {options} or --cluster")
    return named


def _acls(arguments: argparse.Namespace) -> Iterable[Acl]:
    for word in ("allow", "deny"):
        if getattr(arguments, f"{word}_host") and not getattr(arguments, f"{word}_principal"):
            raise CommandError(f"--{word}-host needs --{word}-principal")
    pattern_type = AclPatternType[arguments.resource_pattern_type]
    for resource, operations in _operations(arguments):
        literal = resource.type is AclResourceType.CLUSTER and pattern_type is AclPatternType.PREFIXED
        pattern = AclPatternType.LITERAL if literal else pattern_type
        for permission, principals, hosts in (
            (AclPermissionType.ALLOW, arguments.allow_principal, arguments.allow_host),
            (AclPermissionType.DENY, arguments.deny_principal, arguments.deny_host),
        ):
            for who in principals:
                for host in hosts or [ANYWHERE]:
                    for each in operations:
                        yield Acl(resource.type, resource.name, pattern, who, host, each, permission)


def _operations(arguments: argparse.Namespace) -> Iterable[tuple[Resource, tuple[AclOperation, ...]]]:
    """Each resource with the operations of its entries. Raises CommandError."""
    named = _named(arguments)
    if arguments.producer or arguments.consumer:
        yield from _of_roles(arguments, named)
        return
    if arguments.idempotent:
        raise CommandError("--idempotent needs --producer")
    operations = tuple(arguments.operation) or (AclOperation.ALL,)
    for resource in named:
        known = (*OPERATIONS[resource.type], AclOperation.ALL)
        wrong = [shown(each) for each in operations if each not in known]
        if wrong:
            names = ", ".join(shown(each) for each in known)
            raise CommandError(f"{shown(resource.type)} has no operation {', '.join(wrong)}, only {names}")
        yield resource, operations


def _of_roles(
    arguments: argparse.Namespace, named: list[Resource]
) -> Iterable[tuple[Resource, tuple[AclOperation, ...]]]:
    """Case (C)."""
    if arguments.operation or arguments.deny_principal or arguments.deny_host:
        raise CommandError("--producer and --consumer go without --operation, --deny-principal and --deny-host")
    types = {each.type for each in named}
    if AclResourceType.TOPIC not in types or (arguments.consumer and AclResourceType.GROUP not in types):
        raise CommandError("--producer needs --topic, --consumer needs --topic and --group")
    roles: dict[AclResourceType, tuple[AclOperation, ...]] = {}
    if arguments.producer:
        roles[AclResourceType.TOPIC] = (_O.WRITE, _O.DESCRIBE, _O.CREATE)
        roles[AclResourceType.TRANSACTIONAL_ID] = (_O.WRITE, _O.DESCRIBE)
    if arguments.consumer:
        roles[AclResourceType.TOPIC] = (*roles.get(AclResourceType.TOPIC, ()), _O.READ, _O.DESCRIBE)
        roles[AclResourceType.GROUP] = (_O.READ,)
    for resource in named:
        if resource.type not in roles:
            raise CommandError(f"--producer and --consumer give nothing on {shown(resource.type)}")
        yield resource, roles[resource.type]
    if arguments.producer and arguments.idempotent:
        yield Resource(AclResourceType.CLUSTER, CLUSTER_NAME), (_O.IDEMPOTENT_WRITE,)
