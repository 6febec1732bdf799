"""A full disk under the tables: a clear error, and nothing is lost once space is free again."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs import ingest
from odradek.pipeline.settings import Settings
from odradek.testing import BrokerThread
from tests.pipeline.lake import check_tables, order, send

MEBIBYTE = 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """24 MiB of tmpfs; only root can mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a tmpfs")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(path)], check=False).returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk_stops_the_ingest_and_free_space_lets_it_continue(
    spark: SparkSession, broker: BrokerThread, orders: Settings, topic: str, small_disk: Path
) -> None:
    settings = replace(orders, lake=str(small_disk / "lake"), dedup_keys=("id",), max_offsets_per_trigger=30)
    send(broker.bootstrap, topic, [*(order(number, number) for number in range(20)), None])
    assert ingest.run(settings) == 0
    # Full while rows are written, then before any write. Random values: compression does not make them fit.
    for first, left in ((20, 3 * MEBIBYTE), (44, 32 * 1024)):
        large = [order(number, number, customer=os.urandom(100_000).hex()) for number in range(first, first + 24)]
        send(broker.bootstrap, topic, large, max_request_size=2 * MEBIBYTE)
        ballast, disk = small_disk / "ballast", os.statvfs(small_disk)
        ballast.write_bytes(bytes(disk.f_bavail * disk.f_frsize - left))
        with pytest.raises(PipelineError, match="the disk is full") as caught:
            ingest.run(settings)
        assert "\n" not in str(caught.value)
        ballast.unlink()
        assert ingest.run(settings) == 0
    check_tables(spark, settings)
