"""Publishes a committed batch: in the progress display, the metrics and the shadow group."""

from __future__ import annotations

from odradek.pipeline.kafka import shadow_group
from odradek.pipeline.report.progress import BatchDone, Progress
from odradek.pipeline.settings import Settings
from odradek.pipeline.state.ledger import LedgerRow
from odradek.pipeline.state.selection import REDRIVE


def show(shown: Progress, settings: Settings, row: LedgerRow) -> None:
    """Shows a batch. The lag refers to the topics' end offsets when the batch was planned."""
    if row.job != REDRIVE:  # It has read no offsets, and does not need the brokers.
        shadow_group.commit(settings, row.end_offsets)
    shown.metrics.batch(settings.name, row)
    waiting = sum(
        max(0, end - row.end_offsets.get(name, {}).get(number, 0))
        for name, topic in row.topics.items()
        for number, end in topic.ends.items()
    )
    shown.batch(
        BatchDone(
            row.job,
            row.batch_id,
            row.rows_in,
            row.good,
            row.dead,
            row.duplicates,
            row.late,
            (row.finished_at - row.started_at).total_seconds(),
            row.lost,
            waiting,
            row.watermark,
            row.superseded,
            row.deletes,
            row.filtered,
            row.dropped,
            row.redriven,
        )
    )
