"""Pipelines whose lakes are compared: the same topics, ingested elsewhere, give the same tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deltalake import DeltaTable

from odradek.pipeline.jobs import ingest
from odradek.pipeline.settings import Settings
from odradek.pipeline.sinks.iceberg.tables import TablePlace
from odradek.pipeline.sinks.iceberg_tables import has_iceberg_metadata
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.places import Places
from tests.pipeline.cluster.object_store import ObjectStore
from tests.pipeline.lake import check_ledger, order, same_rows

QUICK_RETRIES = {
    "max_retries": "8",
    "retry_timeout": "20s",
    "backoff_config.init_backoff": "5ms",
    "backoff_config.max_backoff": "50ms",
}
"""Options of [store] for a store on loopback."""
MEASURES = {"started_at", "finished_at", "files_written", "bytes_written"}
"""Columns of the ledger that differ from run to run."""


def varied(orders: Settings, **more: Any) -> Settings:
    """A pipeline that uses every feature of the tables."""
    return replace(
        orders,
        dedup_keys=("id",),
        late_rows="keep",
        watermark_delay="1 minute",
        window="1 minute",
        window_by=("customer",),
        window_sums=("amount",),
        **more,
    )


def in_store(settings: Settings, store: ObjectStore, **options: str) -> Settings:
    """The same pipeline with its lake in a bucket."""
    return replace(settings, lake=f"{store.url}/lake", store={**store.options, **QUICK_RETRIES, **options})


def every_kind(first: int, at: int, count: int = 60) -> list[bytes | None]:
    """Orders of a minute, a tenth of them twice, and some that are broken."""
    values: list[bytes | None] = []
    for number in range(first, first + count):
        values.append(order(number, at + number - first))
        if number % 10 == 0:
            values.append(order(number, at + number - first))
    return [*values, b"{", None, b'{"id": null}']


def rows_of(place: Location) -> list[dict[str, Any]]:
    if has_iceberg_metadata(place):
        found: list[dict[str, Any]] = TablePlace(place).open().scan().to_arrow().to_pylist()
        return found
    rows: list[dict[str, Any]] = (
        DeltaTable(place.url, storage_options=dict(place.options)).to_pyarrow_table().to_pylist()
    )
    return rows


def tables_of(settings: Settings) -> Mapping[str, list[dict[str, Any]]]:
    """The rows of all tables but the ledger."""
    places = Places.of(settings)
    named = {"rows": places.rows, "dead": places.dead_letters, "late": places.late, "windows": places.windows}
    return {name: rows_of(place) for name, place in named.items() if place.is_there()}


def check_same(settings: Settings, twin: Settings) -> None:
    """Fails unless both lakes have the same tables, and the same batches that add up."""
    found, wanted = tables_of(settings), tables_of(twin)
    assert set(found) == set(wanted)
    for name, rows in wanted.items():
        same_rows(found[name], rows)
    offsets = [(row["_partition"], row["_offset"]) for row in found["rows"]]
    assert len(set(offsets)) == len(offsets), "an offset is there twice"
    mine, other = (
        [{name: getattr(row, name) for name in row.__slots__ if name not in MEASURES} for row in check_ledger(one)]
        for one in (settings, twin)
    )
    assert mine == other


def ingested_twin(settings: Settings, lake: str) -> Settings:
    """The same pipeline in a directory, which is ingested here and now."""
    twin = replace(settings, lake=lake, store={}, master="", spark={}, shadow_group=f"twin-{settings.group}")
    assert ingest.run(twin) == 0
    return twin
