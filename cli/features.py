"""`odradek features`: show the features of a cluster, raise and lower their levels."""

from __future__ import annotations

import argparse
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from odradek.cli.errors import CommandError
from odradek.cli.options import add_bootstrap_server, assignments, command, with_admin
from odradek.cli.tables import print_table

if TYPE_CHECKING:
    from odradek.clients.admin.features import DescribedFeature, DescribedFeatures, FeatureAdmin
    from odradek.protocol.wire_codes import UpgradeType

T = TypeVar("T")

EXAMPLES = """  odradek features describe
  odradek features upgrade --all
  odradek features upgrade --feature group.version=1
  odradek features downgrade --feature transaction.version=0 --dry-run
"""
COLUMNS = ("FEATURE", "FINALIZED", "SUPPORTED")
UNSUPPORTED = "none"
HIGHEST_LEVEL = 32_767


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `features` and its actions."""
    parser = command(subparsers, "features", "show features, raise and lower their levels", _help, examples=EXAMPLES)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions", required=True)
    _add_describe(actions)
    _add_upgrade(actions)
    _add_downgrade(actions)


def _help(arguments: argparse.Namespace) -> int:
    raise CommandError("features needs an action: describe, upgrade or downgrade")


def _with_features(arguments: argparse.Namespace, work: Callable[[FeatureAdmin], Awaitable[T]]) -> T:
    from odradek.clients.admin.features import FeatureAdmin

    return with_admin(arguments, lambda admin: work(FeatureAdmin(admin)))


# describe


def _add_describe(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek features describe\n  odradek features describe --json\n"
    description = (
        "Show each feature with its finalized level, 0 if it is off, and the levels that the brokers support.\n"
        "All brokers are asked; brokers that support others than the rest are named."
    )
    parser = command(actions, "describe", "show the features", describe, description=description, examples=examples)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_bootstrap_server(parser)


def describe(arguments: argparse.Namespace) -> None:
    """Prints the features that any broker knows."""
    found = _with_features(arguments, lambda admin: admin.describe())
    if arguments.json:
        print(json.dumps(_as_json(found), indent=2))
        return
    print_table(COLUMNS, [(each.name, each.finalized, _supported(each, found.brokers)) for each in found.features])


def _supported(feature: DescribedFeature, brokers: list[int]) -> str:
    """The levels that the brokers support, with the brokers' ids if they differ."""
    by_levels: dict[str, list[str]] = {}
    for broker_id in brokers:
        levels = feature.supported.get(broker_id)
        text = UNSUPPORTED if levels is None else f"{levels.lowest}-{levels.highest}"
        by_levels.setdefault(text, []).append(str(broker_id))
    if len(by_levels) == 1:
        return next(iter(by_levels))
    return ", ".join(f"{text} by broker {' '.join(ids)}" for text, ids in by_levels.items())


def _as_json(found: DescribedFeatures) -> dict[str, Any]:
    return {
        "epoch": found.epoch if found.epoch >= 0 else None,
        "features": [
            {
                "name": feature.name,
                "finalized": feature.finalized,
                "supported": {
                    str(broker_id): None if levels is None else levels._asdict()
                    for broker_id in found.brokers
                    for levels in [feature.supported.get(broker_id)]
                },
            }
            for feature in found.features
        ],
    }


# upgrade and downgrade


def _add_upgrade(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek features upgrade --all\n  odradek features upgrade --feature group.version=1\n"
    parser = command(actions, "upgrade", "raise levels of features", upgrade, examples=examples)
    which = parser.add_mutually_exclusive_group(required=True)
    _add_feature(which)
    which.add_argument("--all", action="store_true", help="all features, to the highest level that every broker has")
    _add_dry_run(parser)


def _add_downgrade(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    examples = "  odradek features downgrade --feature transaction.version=0\n"
    description = "Lower levels of features; 0 switches a feature off."
    parser = command(
        actions, "downgrade", "lower levels of features", downgrade, description=description, examples=examples
    )
    _add_feature(parser, required=True)
    parser.add_argument("--unsafe", action="store_true", help="even if that may lose metadata")
    _add_dry_run(parser)


def _add_feature(parser: argparse._ActionsContainer, **how: Any) -> None:
    parser.add_argument(
        "--feature",
        action="append",
        default=[],
        dest="features",
        metavar="NAME=LEVEL",
        help="the new level of a feature; may be repeated",
        **how,
    )


def _add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only check whether the change is possible")
    add_bootstrap_server(parser)


def upgrade(arguments: argparse.Namespace) -> None:
    """Raises all the given levels, or none."""
    from odradek.protocol.wire_codes import UpgradeType

    _update(arguments, UpgradeType.UPGRADE, "upgraded")


def downgrade(arguments: argparse.Namespace) -> None:
    """Lowers all the given levels, or none."""
    from odradek.protocol.wire_codes import UpgradeType

    kind = UpgradeType.UNSAFE_DOWNGRADE if arguments.unsafe else UpgradeType.SAFE_DOWNGRADE
    _update(arguments, kind, "downgraded")


def _update(arguments: argparse.Namespace, kind: UpgradeType, done: str) -> None:
    named = {name: _level(name, text) for name, text in assignments(arguments.features, "--feature").items()}

    async def work(admin: FeatureAdmin) -> dict[str, int]:
        levels = named or (await admin.describe()).raised()
        if levels:
            await admin.update(levels, kind, validate_only=arguments.dry_run)
        return levels

    levels = _with_features(arguments, work)
    for name, level in levels.items():
        print(f"{name} {f'can be {done}' if arguments.dry_run else done} to {level}")
    if not levels:
        print("every feature has the highest level that all brokers support")


def _level(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > HIGHEST_LEVEL:
        raise CommandError(f"--feature {name}={text}: a level is a whole number from 0 to {HIGHEST_LEVEL}")
    return int(text)
