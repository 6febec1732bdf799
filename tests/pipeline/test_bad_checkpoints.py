"""Checkpoints that a kill, a full disk or a mistake has left: mended where nothing can be lost by it, else refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.broker.testing import BrokerThread
from odradek.pipeline.checkpoints import Checkpoint, Damaged, Mending
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import ingest
from odradek.pipeline.places import Places
from odradek.pipeline.settings import Settings
from tests.pipeline.checkpoint_files import checkpoint, cut
from tests.pipeline.lake import check_tables, order, send


def mend(torn: Checkpoint, written: int | None) -> str:
    """Removes what is to go, and not before it is told; what was told."""
    before = sorted(torn.path.rglob("*"))
    mending = torn.mending(written)
    assert sorted(torn.path.rglob("*")) == before
    mending.carry_out()
    assert (torn.last_planned(), torn.last_done()) == (mending.last_planned, mending.last_done)
    assert torn.mending(written) == Mending((), mending.last_planned, mending.last_done), "once is enough"
    return "\n".join(str(removal) for removal in mending.removals)


def test_offsets_are_those_of_the_plan_and_of_the_one_before(tmp_path: Path) -> None:
    whole = checkpoint(tmp_path, 2, 1)
    assert (whole.last_planned(), whole.last_done()) == (1, 0)
    assert whole.mending(0) == Mending((), 1, 0)
    assert whole.start_offsets(0) == {"orders": {0: 3, 1: 0}}, "a partition that came later begins at 0"
    assert whole.start_offsets(1) == whole.end_offsets(0) == {"orders": {0: 10, 1: 7}}


@pytest.mark.parametrize("part", [0, 0.5])
@pytest.mark.parametrize("name", ["offsets/1", "commits/0", "metadata"])
def test_the_newest_file_that_was_torn_goes_with_its_checksum(tmp_path: Path, name: str, part: float) -> None:
    torn = checkpoint(tmp_path, 2, 1)
    cut(tmp_path / name, part)
    said = mend(torn, 0)
    assert name in said
    assert not (tmp_path / name).exists()
    assert not (tmp_path / name).with_name(f".{Path(name).name}.crc").exists()


@pytest.mark.parametrize("part", [0, 0.3, 0.6])
@pytest.mark.parametrize(
    ("name", "plans", "commits", "written"),
    [("offsets/1", 2, 2, 1), ("offsets/1", 2, 1, 1), ("offsets/0", 2, 1, 0), ("sources/0/0", 1, 0, 0)],
    ids=["committed", "written", "the one before", "the beginning"],
)
def test_a_torn_file_that_is_needed_is_named_and_kept(
    tmp_path: Path, name: str, plans: int, commits: int, written: int, part: float
) -> None:
    torn = checkpoint(tmp_path, plans, commits)
    cut(tmp_path / name, part)
    with pytest.raises(Damaged, match=name):
        torn.mending(written)
    assert (tmp_path / name).exists()


def test_a_first_batch_that_nobody_wrote_is_planned_anew_when_its_beginning_is_torn(tmp_path: Path) -> None:
    torn = checkpoint(tmp_path, 1, 0)
    cut(tmp_path / "sources/0/0", 0.5)
    mend(torn, None)
    assert torn.last_planned() is None
    assert not (tmp_path / "sources/0/0").exists()


def test_plans_of_nothing_but_hidden_files_are_removed(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets/.0.5c1d.tmp").write_text("v1")
    mend(Checkpoint(tmp_path), None)
    assert not (tmp_path / "offsets").exists()


def test_commits_without_a_plan_are_damage(tmp_path: Path) -> None:
    torn = checkpoint(tmp_path, 0, 1)
    (tmp_path / "offsets").mkdir()
    with pytest.raises(Damaged, match="offsets"):
        torn.mending(0)


def test_a_checksum_whose_file_is_gone_is_removed(tmp_path: Path) -> None:
    torn = checkpoint(tmp_path, 2, 2)
    (tmp_path / "commits/1").unlink()
    mend(torn, 1)
    assert not (tmp_path / "commits/.1.crc").exists()
    assert (tmp_path / "commits/.0.crc").exists()


# Below, an ingest runs, something happens to what it left, and it runs again.

Mishap = Callable[[Places], None]


def current(places: Places) -> Path:
    return max(places.state.glob("checkpoint-*"))


def newest(places: Places, log: str) -> Path:
    return max((one for one in (current(places) / log).iterdir() if one.name.isdigit()), key=lambda one: int(one.name))


def remove(name: str) -> Mishap:
    return lambda places: shutil.rmtree(places.state.parent / name)


def emptied(name: str) -> Mishap:
    return lambda places: cut(current(places) / name, 0)


def uncommitted(places: Places) -> None:
    newest(places, "commits").unlink()


def torn_commit(places: Places) -> None:
    cut(newest(places, "commits"), 0.5)


def torn_plan(places: Places) -> None:
    cut(newest(places, "offsets"), 0.5)


def lost_checkpoint(places: Places) -> None:
    shutil.rmtree(current(places))


def old_checkpoint(places: Places) -> None:
    """As it was two batches ago."""
    for log in ("offsets", "commits", "offsets", "commits"):
        newest(places, log).unlink()


def torn_state(places: Places) -> None:
    for file in current(places).glob("state/0/*/*.delta"):
        file.write_bytes(b"")


def test_what_can_be_mended_is_and_no_row_is_lost_or_doubled(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    settings = replace(orders, dedup_keys=("id",), watermark_delay="1 hour")
    mishaps: list[list[Mishap]] = [[], [uncommitted, emptied("metadata")], [torn_commit, emptied("sources/0/0")]]
    for first, together in enumerate(mishaps):
        send(broker.bootstrap, topic, [*(order(number, number) for number in range(20 * first, 20 * first + 30)), b"{"])
        for mishap in together:
            mishap(Places.of(settings))
        assert ingest.run(settings) == 0
    check_tables(spark, settings)


@pytest.mark.usefixtures("spark")
def test_what_cannot_be_mended_is_refused_and_changes_nothing(
    broker: BrokerThread, orders: Settings, topic: str, tmp_path: Path
) -> None:
    settings = replace(orders, dedup_keys=("id",), max_offsets_per_trigger=50, watermark_delay="1 hour")
    send(broker.bootstrap, topic, [*(order(number, number) for number in range(110)), b"{", None])
    assert ingest.run(settings) == 0
    send(broker.bootstrap, topic, [order(number, number) for number in range(100, 120)])
    refusals: list[tuple[Mishap, str]] = [
        (torn_plan, r"offsets/\d+ is damaged.*keys that were remembered; put the checkpoint back"),
        (old_checkpoint, r"has planned up to batch \d+, but the tables have batch \d+, and with it the keys"),
        (lost_checkpoint, r"checkpoint-1 is gone, and with it the keys that were remembered"),
        (remove("orders"), r"of the rows in .*/orders, the table has none: it is gone"),
        (remove("orders_dead_letters"), r"of the dead letters in .*, the table has none: it is gone"),
        (remove("_orders/batches"), r"has committed batch \d+, but the ledger .* has none"),
        (remove("_orders"), r"have batches that the ledger .* does not know; move"),
        (lambda places: places.generation(1).unlink(), r"generation-1.json is gone, with the ids of the topics"),
        (torn_state, r"the keys that the checkpoint remembers \(its directory state/\) cannot be read"),
    ]
    lake = Path(settings.lake)
    for mishap, wanted in refusals:
        shutil.copytree(lake, tmp_path / "kept")
        mishap(Places.of(settings))
        with pytest.raises(PipelineError, match=wanted) as caught:
            ingest.run(settings)
        assert "\n" not in str(caught.value)
        shutil.rmtree(lake)
        (tmp_path / "kept").rename(lake)
    for change, wanted in [
        ({"dedup_keys": ("id", "customer")}, "of another query: dedup-keys was {'id': 'bigint'} and is"),
        ({"topics": ("others",)}, "of another query: topics was"),
        ({"name": "others", "state": str(lake / "_orders")}, "of another query: name was 'orders'"),
    ]:
        with pytest.raises(PipelineError, match=wanted):
            ingest.run(replace(settings, **change))  # type: ignore[arg-type]


def test_where_no_keys_are_remembered_a_lost_checkpoint_is_replaced_by_the_ledger(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str
) -> None:
    mishaps: list[tuple[Mishap, int]] = [
        (lambda places: None, 0), (lost_checkpoint, 20), (old_checkpoint, 0), (torn_plan, 0)
    ]  # fmt: skip
    for first, (mishap, offsets) in enumerate(mishaps):
        send(broker.bootstrap, topic, [*(order(number, number) for number in range(50 * first, 50 * first + 50)), b"{"])
        mishap(Places.of(orders))
        assert ingest.run(replace(orders, max_offsets_per_trigger=offsets)) == 0
    assert check_tables(spark, orders)[-1].generation == len(mishaps)
