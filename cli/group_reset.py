"""The targets and partitions of `odradek groups reset-offsets`."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from odradek.cli.errors import CommandError
from odradek.cli.options import not_negative

if TYPE_CHECKING:
    from odradek.clients.admin.groups import GroupAdmin
    from odradek.protocol.topic_partition import TopicPartition

_DURATION = re.compile(r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,3})?)S)?)?", re.ASCII)
_UNITS_MS = (86_400_000, 3_600_000, 60_000, 1_000)


class ResetTo(NamedTuple):
    """Exactly one is set. `time_ms`: ms since 1970, or EARLIEST or LATEST. `to_current` keeps the committed offsets."""

    time_ms: int | None = None
    offset: int | None = None
    shift_by: int | None = None
    to_current: bool = False


def add_reset_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options for the partitions, the target, and whether to commit."""
    scope = parser.add_argument_group("partitions").add_mutually_exclusive_group(required=True)
    scope.add_argument(
        "--topic",
        action="append",
        default=[],
        dest="topics",
        metavar="TOPIC[:P,P...]",
        help="a topic, or some of its partitions; may be repeated",
    )
    scope.add_argument("--all-topics", action="store_true", help="all partitions with a committed offset of the group")
    goal = parser.add_argument_group("new offset").add_mutually_exclusive_group(required=True)
    goal.add_argument("--to-earliest", action="store_true", help="to the log start offset")
    goal.add_argument("--to-latest", action="store_true", help="to the log end offset")
    goal.add_argument("--to-current", action="store_true", help="to the committed offset, or else the log end offset")
    goal.add_argument("--to-offset", type=not_negative, metavar="OFFSET", help="to this offset")
    goal.add_argument("--shift-by", type=whole_number, metavar="N", help="by N records, back if N is negative")
    goal.add_argument(
        "--to-datetime",
        type=time_ms,
        metavar="TIME",
        help="to the first record of this time or later: YYYY-MM-DDTHH:MM:SS.sss, in UTC unless a zone follows",
    )
    goal.add_argument(
        "--by-duration", type=duration_ms, metavar="PnDTnHnMnS", help="to the first record that is not older than this"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="only show the new offsets (the default)")
    how.add_argument("--execute", action="store_true", help="commit the new offsets")


def reset_of(arguments: argparse.Namespace) -> ResetTo:
    """Returns the target that the options select."""
    from odradek.clients.admin.groups import EARLIEST, LATEST

    if arguments.to_earliest:
        return ResetTo(time_ms=EARLIEST)
    if arguments.to_latest:
        return ResetTo(time_ms=LATEST)
    if arguments.to_datetime is not None:
        return ResetTo(time_ms=arguments.to_datetime)
    if arguments.by_duration is not None:
        return ResetTo(time_ms=max(int(time.time() * 1000) - arguments.by_duration, 0))
    if arguments.to_current:
        return ResetTo(to_current=True)
    return ResetTo(offset=arguments.to_offset, shift_by=arguments.shift_by)


async def scope_of(admin: GroupAdmin, arguments: argparse.Namespace) -> list[TopicPartition]:
    """Returns the partitions that the options select."""
    if arguments.all_topics:
        found = list(await admin.committed(arguments.group))
        if not found:
            raise CommandError(f"the group '{arguments.group}' has no offsets; name topics with --topic")
        return found
    partitions = [key for text in arguments.topics for key in await _named(admin, text)]
    return sorted(set(partitions))


async def _named(admin: GroupAdmin, text: str) -> list[TopicPartition]:
    from odradek.protocol.topic_partition import TopicPartition

    topic, colon, numbers = text.partition(":")
    existing = await admin.partitions_of(topic)
    if not colon:
        return existing
    if not re.fullmatch(r"\d+(,\d+)*", numbers, re.ASCII):
        raise CommandError(f"--topic {text}: expected TOPIC:P,P...")
    wanted = [TopicPartition(topic, int(number)) for number in numbers.split(",")]
    for key in wanted:
        if key not in existing:
            raise CommandError(f"there is no partition {key}")
    return wanted


async def new_offsets(
    admin: GroupAdmin, group_id: str, partitions: list[TopicPartition], reset: ResetTo
) -> dict[TopicPartition, int]:
    """Returns the new offset of each partition."""
    if reset.time_ms is not None:
        found = await admin.offsets_at(partitions, reset.time_ms)
    elif reset.offset is not None:
        found = await _within(admin, dict.fromkeys(partitions, reset.offset))
    else:
        found = await _from_current(admin, group_id, partitions, reset.shift_by)
    for key in partitions:
        if key not in found:
            raise CommandError(f"cannot list the offsets of {key}: it has no leader")
    return found


async def _from_current(
    admin: GroupAdmin, group_id: str, partitions: list[TopicPartition], shift_by: int | None
) -> dict[TopicPartition, int]:
    """Returns committed offsets plus `shift_by`; with None, the committed offsets, or the log end where none exists."""
    from odradek.clients.admin.groups import LATEST

    committed = await admin.committed(group_id)
    missing = [key for key in partitions if key not in committed]
    current = {key: committed[key] for key in partitions if key in committed}
    if shift_by is None:
        return dict(sorted((current | await admin.offsets_at(missing, LATEST)).items()))
    if missing:
        raise CommandError(f"the group '{group_id}' has no offset of {missing[0]} to shift")
    return await _within(admin, {key: offset + shift_by for key, offset in current.items()})


async def _within(admin: GroupAdmin, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Limits offsets to their logs, from the start offset to the end offset."""
    from odradek.clients.admin.groups import EARLIEST, LATEST

    starts, ends = await admin.offsets_at(wanted, EARLIEST), await admin.offsets_at(wanted, LATEST)
    return {
        key: min(max(offset, starts[key]), ends[key]) for key, offset in wanted.items() if key in starts and key in ends
    }


def whole_number(text: str) -> int:
    """argparse type: an integer, which may be negative."""
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def time_ms(text: str) -> int:
    """argparse type: converts an ISO 8601 time, in UTC unless it names a zone, to ms since 1970."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time like 2026-03-01T12:00:00.000") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    milliseconds = round(found.timestamp() * 1000)
    if milliseconds < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is before 1970")
    return milliseconds


def duration_ms(text: str) -> int:
    """argparse type: converts an ISO 8601 duration of days, hours, minutes and seconds to ms."""
    found = _DURATION.fullmatch(text.upper())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration like P7D, PT12H or P1DT2H30M")
    return round(sum(float(part or 0) * unit for part, unit in zip(found.groups(), _UNITS_MS, strict=True)))
