"""Plans: a batch is repeated as it began, whatever the current settings."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.kafka.topics import KnownTopic
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.plan import JUDGING, DamagedPlan, Plan, Plans, changed, judging_settings

NOW = datetime(2026, 3, 1, 12, 0, 0, 1, tzinfo=UTC)
THREADS = 20


def settings_of(**changes: Any) -> Settings:
    usual = {
        "name": "orders",
        "topics": ["t"],
        "schema": "id LONG, at TIMESTAMP",
        "event_time": "at",
        "dedup_keys": ["id"],
        "partition_by": ["id"],
        "required": ["id", "at"],
    }
    return make_settings({**usual, **changes})


def plan_of(settings: Settings, **changes: Any) -> Plan:
    usual: dict[str, Any] = {
        "number": 7, "job": "ingest", "planned_at": NOW,
        "start": {"t": {0: 5, 11: 0}}, "end": {"t": {0: 9, 11: 0, 12: 3}, "gone": {0: 4}},
        "topics": {"t": KnownTopic("id-1", {0: 9, 11: 2}), "gone": KnownTopic("", {})}, "lost": 3,
        "watermark": NOW - timedelta(minutes=10), "newest_event_time": NOW, "judging": judging_settings(settings),
    }  # fmt: skip
    return Plan(**{**usual, **changes})


@pytest.fixture
def state(tmp_path: Path) -> Location:
    return Location(str(tmp_path / "state"))


@pytest.mark.parametrize("changes", [{}, {"watermark": None, "newest_event_time": None, "start": {}, "topics": {}}])
def test_a_plan_is_read_back_unchanged(state: Location, changes: dict[str, Any]) -> None:
    plan = plan_of(settings_of(), **changes)
    plans = Plans(state)
    assert plans.read(7) is None
    assert plans.create(plan) is plan
    assert Plans(state).read(7) == plan
    assert plans.read(8) is None


def test_plans_are_listed_by_number_and_removed(state: Location) -> None:
    plans = Plans(state)
    assert plans.numbers() == []
    for number in (10, 9):
        plans.create(plan_of(settings_of(), number=number))
    for other in ("plan-x.json", "plan-.json", "plan-\N{SUPERSCRIPT TWO}.json", "plans"):
        state.replace(other, b"")
    assert plans.numbers() == [9, 10]
    plans.remove(9)
    plans.remove(9)
    assert plans.numbers() == [10]


def test_a_repeated_batch_uses_its_planned_settings_and_the_other_current_ones() -> None:
    then = settings_of(watermark_delay="1 hour", job_version="1", unknown_fields="keep", max_future="")
    now = settings_of(
        schema="id LONG, at TIMESTAMP, more STRING", watermark_delay="5 minutes", job_version="2", dedup_keys=[],
        partition_by=[], lake="elsewhere", on_data_loss="continue", bootstrap_server="other:9092", files_per_batch=3,
    )  # fmt: skip
    plan = plan_of(then)
    repeated = plan.settings(now)
    assert {name: getattr(repeated, name) for name in JUDGING} == {name: getattr(then, name) for name in JUDGING}
    assert replace(repeated, **{name: getattr(now, name) for name in JUDGING}) == now
    assert plan.settings(then) == then
    assert set(changed(plan, now)) == {
        *("schema", "watermark-delay", "job-version", "dedup-keys", "partition-by", "unknown-fields", "max-future"),
    }
    assert changed(plan, replace(then, lake="elsewhere", max_offsets_per_trigger=1)) == []


def test_every_setting_that_decides_about_records_is_in_the_plan() -> None:
    """A new setting must be declared as one kind or the other."""
    others = {
        *(
            "name",
            "lake",
            "state",
            "master",
            "driver_memory",
            "bootstrap_server",
            "topics",
            "topics_pattern",
            "starting_offsets",
        ),
        *("max_offsets_per_trigger", "backfill_from", "log_dirs", "trigger", "on_data_loss", "on_recreated_topic"),
        *("metrics_port", "metrics_host", "max_lag", "max_dead", "alarm_period"),
        *("files_per_batch", "shadow_group", "compact_target_size", "compact_retention", "kafka", "store", "spark"),
        "iceberg",
        *("schema_registry_login", "schema_registry_ca", "schema_subjects"),
    }
    assert set(Settings.__dataclass_fields__) == others | set(JUDGING)


def test_a_plan_has_the_registered_schemas_which_a_job_may_replace_and_a_user_may_not(state: Location) -> None:
    then = settings_of(schema="the schemas", schema_registry="http://old", schema_registry_login="a:secret")
    now = settings_of(schema="newer schemas", schema_registry="http://new", schema_registry_login="b:secret")
    plan = Plans(state).create(plan_of(then))
    assert "secret" not in (state.read("plan-7.json") or b"").decode()
    repeated = plan.settings(now)
    assert (repeated.schema, repeated.schema_registry) == ("the schemas", "http://old")
    assert changed(plan, now) == ["schema-registry"]


def test_a_plan_of_an_older_version_lacks_newer_settings_which_then_have_their_defaults(state: Location) -> None:
    then = settings_of()
    plan = plan_of(then)
    older = replace(plan, judging={name: one for name, one in plan.judging.items() if name != "schema_registry"})
    Plans(state).create(older)
    found = Plans(state).read(7)
    assert found is not None
    assert found.settings(replace(then, schema_registry="http://new")) == then


def test_the_plan_keeps_the_content_of_a_schema_file(state: Location, tmp_path: Path) -> None:
    file = tmp_path / "schema.ddl"
    file.write_text("id LONG")
    settings = settings_of(schema=f"@{file}", event_time="", required=[])
    plan = Plans(state).create(plan_of(settings))
    file.write_text("id LONG, more STRING")
    assert plan.settings(settings).schema == "id LONG"
    assert changed(plan, settings) == ["schema"]
    file.unlink()
    with pytest.raises(PipelineError, match=r"schema\.ddl cannot be read"):
        changed(plan, settings)


def test_a_protobuf_batch_needs_its_original_descriptors(tmp_path: Path) -> None:
    file, moved = tmp_path / "orders.desc", tmp_path / "moved.desc"
    file.write_bytes(b"\x0a\xff")
    moved.write_bytes(b"\x0a\xff")
    settings = settings_of(format="protobuf", schema=f"@{file}", message_name="Order")
    plan = plan_of(settings)
    assert str(file) not in json.dumps(dict(plan.judging))
    elsewhere = replace(settings, schema=f"@{moved}", required=())
    assert plan.settings(elsewhere) == replace(settings, schema=f"@{moved}")
    assert changed(plan, elsewhere) == ["required"]
    moved.write_bytes(b"\x0a")
    with pytest.raises(PipelineError, match="batch 7 is in some of the tables already, and was read with another"):
        plan.settings(elsewhere)


def test_a_batch_planned_in_another_format_does_not_need_the_descriptors(tmp_path: Path) -> None:
    (tmp_path / "orders.desc").write_bytes(b"\x0a")
    now = settings_of(format="protobuf", schema=f"@{tmp_path}/orders.desc", message_name="Order")
    then = settings_of()
    assert plan_of(then).settings(now).schema == then.schema


def torn(part: float) -> Any:
    return lambda text: text[: int(len(text) * part)]


def without(name: str) -> Any:
    def change(text: bytes) -> bytes:
        content = json.loads(text)
        return json.dumps({one: value for one, value in content.items() if one != name}).encode()

    return change


def changing(**changes: Any) -> Any:
    return lambda text: json.dumps({**json.loads(text), **changes}).encode()


@pytest.mark.parametrize(
    "damage",
    [
        *(torn(part) for part in (0, 0.1, 0.5, 0.9, 0.999)),
        *(without(name) for name in Plan.__dataclass_fields__ if name != "redrive"),  # Earlier versions had none.
        changing(job="redrive"),
        changing(redrive={"reasons": [], "since": None, "until": None}),
        lambda _: b"\xff\xfe",
        lambda _: b"[]",
        lambda _: b"null",
        changing(number="x"),
        changing(planned_at="yesterday"),
        changing(planned_at=None),
        changing(watermark=5),
        changing(start=[]),
        changing(start={"t": {"0": "x"}}),
        changing(end={"t": {"0": -5}}),
        changing(topics={"t": {}}),
        changing(judging={}),
        changing(judging={**judging_settings(settings_of()), "sink": "csv"}),
        changing(judging={**judging_settings(settings_of()), "dedup_keys": 5}),
        changing(redrive={}),
        changing(redrive=5),
        changing(redrive={"reasons": [], "since": "yesterday", "until": None}),
        changing(redrive={"reasons": [], "since": "2026-03-01T12:00:00", "until": None}),
        changing(number=6),
        changing(start={"other": {"0": 5}}),
        changing(start={"t": {"0": 10}}),
        changing(planned_at="2026-03-01T12:00:00"),
    ],
)
def test_a_damaged_plan_is_reported_in_one_line_with_its_file(state: Location, damage: Any) -> None:
    Plans(state).create(plan_of(settings_of()))
    content = state.read("plan-7.json")
    assert content is not None
    state.replace("plan-7.json", damage(content))
    with pytest.raises(DamagedPlan, match=f"{state}/plan-7.json is damaged ") as caught:
        Plans(state).read(7)
    assert "\n" not in f"{caught.value}"


def test_a_plan_of_an_earlier_version_reads_topics(state: Location) -> None:
    plan = Plans(state).create(plan_of(settings_of()))
    content = state.read("plan-7.json")
    assert content is not None
    state.replace("plan-7.json", without("redrive")(content))
    assert Plans(state).read(7) == plan


def test_one_of_many_jobs_plans_a_batch_and_the_others_fail(state: Location) -> None:
    together, won, errors = threading.Barrier(THREADS), [], []

    def plan(lost: int) -> None:
        together.wait()
        try:
            won.append(Plans(state).create(plan_of(settings_of(), lost=lost)))
        except PipelineError as error:
            errors.append(f"{error}")

    threads = [threading.Thread(target=plan, args=(number,)) for number in range(THREADS)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(won) == 1
    assert Plans(state).read(7) == won[0]
    assert set(errors) == {f"another ingest, backfill or redrive has planned batch 7 in {state}; let one of them run"}
