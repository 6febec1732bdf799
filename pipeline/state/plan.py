"""The plan of a batch: what it reads and how its records are judged. Written before the first record is read, and
never changed.

A batch that was stopped between two commits is repeated by its plan: the same offsets, judged as before, whatever the
settings are now. So no record is skipped, and none is in two tables. If no table has anything of a batch, the batch is
planned again. The plan is removed when the ledger has the batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.kafka.offsets import Offsets, offsets_of, offsets_text
from odradek.pipeline.kafka.topics import KnownTopic, known_topics_of, known_topics_text
from odradek.pipeline.parse.hook import load
from odradek.pipeline.parse.schemas import file_of, schema_text
from odradek.pipeline.settings import Settings, flag, make_settings
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.selection import REDRIVE, Selection
from odradek.pipeline.variables import secrets_of

JUDGING = (
    *(
        "format",
        "schema",
        "schema_registry",
        "message_name",
        "required",
        "unknown_fields",
        "event_time",
        "isolation_level",
    ),
    *("columns", "where", "transform", "rules", "record_columns"),
    *("dedup_keys", "watermark_delay", "late_rows", "max_future"),
    *("window", "window_slide", "window_by", "window_sums"),
    *("sink", "partition_by", "results_topic", "job_version"),
    *("mode", "upsert_keys", "key_format"),
)
"""The settings that decide the outcome of a record, its tables, and its form there."""
ADDED = {
    "mode": "append",
    "upsert_keys": [],
    "key_format": "text",
    "schema_registry": "",
    "columns": {},
    "where": "",
    "transform": "",
    "rules": {},
    "record_columns": ["_topic", "_partition", "_offset", "_timestamp"],
}
"""JUDGING settings that plans of earlier versions lack, with the values by which those batches were judged."""
TRANSFORM_DIGEST = "transform_digest"
"""Planned beside `transform`: the digest of the module's source."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of batch `number`.

    `end`: end offsets of all partitions that were ever read. `start`: start offsets of the partitions that this batch
    reads. `planned_at`: the current time for the decision whether an event is in the future. `watermark`: rows with an
    older event time are late; None: no row is late. `newest_event_time`: of all earlier batches. `lost`: how many
    offsets were deleted before the batch was planned. `judging`: the values of the JUDGING settings. `redrive`: which
    dead letters the batch reads, and no topic: `start` is empty. None: it reads topics."""

    number: int
    job: str
    planned_at: datetime
    start: Offsets
    end: Offsets
    topics: Mapping[str, KnownTopic]
    lost: int
    watermark: datetime | None
    newest_event_time: datetime | None
    judging: Mapping[str, Any]
    redrive: Selection | None = None

    def settings(self, now: Settings) -> Settings:
        """Returns the current settings, except that the JUDGING ones are as planned. Raises PipelineError."""
        if "protobuf" == now.format == self.judging["format"] and not self.judging.get("schema_registry"):
            wanted, there = (one["schema"] for one in (self.judging, judging_settings(now)))
            if wanted != there:
                raise PipelineError(
                    f"batch {self.number} is in some of the tables already, and was read with another descriptor set "
                    f"than {now.schema}",
                    "restore the old file for one run",
                )
            return replace(now, **{**_typed(self.judging), "schema": now.schema})
        return replace(now, **_typed(self.judging))

    def refuse_other_transform(self) -> None:
        """Raises PipelineError unless the module of the planned `transform` is unchanged, for a batch to finish."""
        name = self.judging.get("transform")
        if name and self.judging[TRANSFORM_DIGEST] != load(name).digest:
            raise PipelineError(
                f"batch {self.number} is in some of the tables already, and was planned with another version of the "
                f"module of transform {name}",
                "restore the old file for one run",
            )


def judging_settings(settings: Settings) -> dict[str, Any]:
    """Returns the JUDGING settings, with the schema's text in place of its file. Raises PipelineError."""
    found = {name: getattr(settings, name) for name in JUDGING}
    refuse_secrets({"name": settings.name, "topics": settings.topics, **found})
    found = {name: _plain(value) for name, value in found.items()}
    if settings.transform:
        found[TRANSFORM_DIGEST] = load(settings.transform).digest
    if settings.schema_registry:
        return found
    if settings.format == "protobuf":
        found["schema"] = hashlib.sha256(file_of(settings.schema)).hexdigest()
    elif settings.schema.startswith("@"):
        found["schema"] = schema_text(settings)
    return found


def refuse_secrets(stored: Mapping[str, Any]) -> None:
    """Raises PipelineError if a value from the environment would be stored with the tables."""
    for name, value in stored.items():
        if secrets_of(value):
            raise PipelineError(
                f"{flag(name)} has a variable ${{env:...}}, but is stored in plans and tables, and so is no secret",
                "write the value itself",
            )


def _plain(value: object) -> object:
    """Returns a value as JSON keeps it."""
    return list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value


def _typed(judging: Mapping[str, Any]) -> dict[str, Any]:
    made = make_settings({name: judging[name] for name in JUDGING})
    return {name: getattr(made, name) for name in JUDGING}


def changed(plan: Plan, settings: Settings) -> list[str]:
    """Returns the settings that have changed since the batch was planned, as users write them."""
    now = judging_settings(settings)
    if settings.schema_registry:  # Then the job itself puts the schemas there.
        now["schema"] = plan.judging.get("schema")
    return [flag(name) for name in JUDGING if plan.judging.get(name) != now[name]]


class Plans:
    """The plans in the state of a pipeline."""

    def __init__(self, state: Location) -> None:
        self._state = state

    def read(self, number: int) -> Plan | None:
        """Returns the plan of a batch. None if the batch has no plan. Raises DamagedPlan."""
        content = self._state.read(name_of(number))
        if content is None:
            return None
        try:
            return _checked(_plan(json.loads(content)), number)
        except (KeyError, TypeError, ValueError, AttributeError, PipelineError) as error:
            raise DamagedPlan(self._state, number, error) from error

    def create(self, plan: Plan) -> Plan:
        """Writes a plan. Raises PipelineError if another job has planned this batch in the meantime."""
        if not self._state.create(name_of(plan.number), _text(plan)):
            raise PipelineError(
                f"another ingest, backfill or redrive has planned batch {plan.number} in {self._state}",
                "let one of them run",
            )
        return plan

    def remove(self, number: int) -> None:
        """Removes the plan of a batch that the ledger has, or of which nothing was written."""
        self._state.remove(name_of(number))

    def numbers(self) -> list[int]:
        """Returns the numbers of the batches that have a plan."""
        names = (one.removeprefix("plan-").removesuffix(".json") for one in self._state.names("plan-"))
        return sorted(int(name) for name in names if name.isascii() and name.isdigit())


class DamagedPlan(PipelineError):
    """The content of a plan file is not a valid plan."""

    def __init__(self, state: Location, number: int, error: Exception) -> None:
        cause = f"{type(error).__name__}: {error}"
        super().__init__(f"{state / name_of(number)} is damaged ({cause})", f"restore it; or {ANEW}")


def name_of(number: int) -> str:
    """Returns the file name of a plan."""
    return f"plan-{number}.json"


def _text(plan: Plan) -> bytes:
    content = {one.name: getattr(plan, one.name) for one in fields(Plan)} | {
        "planned_at": plan.planned_at.isoformat(),
        "watermark": plan.watermark and plan.watermark.isoformat(),
        "newest_event_time": plan.newest_event_time and plan.newest_event_time.isoformat(),
        "start": json.loads(offsets_text(plan.start)),
        "end": json.loads(offsets_text(plan.end)),
        "topics": json.loads(known_topics_text(plan.topics)),
        "judging": dict(plan.judging),
        "redrive": plan.redrive and plan.redrive.content(),
    }
    return json.dumps(content, indent=1).encode()  # Not sorted: a derived column uses those above it.


def _plan(content: Mapping[str, Any]) -> Plan:
    judging = {**ADDED, **content["judging"]}
    _typed(judging)
    return Plan(
        number=int(content["number"]),
        job=str(content["job"]),
        planned_at=datetime.fromisoformat(content["planned_at"]),
        start=offsets_of(json.dumps(content["start"])),
        end=offsets_of(json.dumps(content["end"])),
        topics=known_topics_of(content["topics"]),
        lost=int(content["lost"]),
        watermark=_time(content["watermark"]),
        newest_event_time=_time(content["newest_event_time"]),
        judging=judging,
        redrive=None if (redrive := content.get("redrive")) is None else Selection.of_content(redrive),
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _checked(plan: Plan, number: int) -> Plan:
    """Returns the plan if it is of this batch and its values are consistent. Raises ValueError and KeyError."""
    if plan.number != number:
        raise ValueError(f"it is the plan of batch {plan.number}")
    times = [plan.planned_at, plan.watermark, plan.newest_event_time]
    if plan.redrive is not None:
        times += [plan.redrive.since, plan.redrive.until]
    if any(one is not None and one.tzinfo is None for one in times):
        raise ValueError("a time has no time zone")
    if any(
        offset > plan.end[name][partition] for name, parts in plan.start.items() for partition, offset in parts.items()
    ):
        raise ValueError("a start offset is after its end offset")
    if (plan.job == REDRIVE) != (plan.redrive is not None):
        raise ValueError(
            f"it is of the job {plan.job}, but selects {'no ' if plan.redrive is None else ''}dead letters"
        )
    return plan
