"""Measures the validation of produced records: nanoseconds per record, microseconds per batch of 16 KB by codec.

    python -m benchmarks.record_validation [--json]

ODRADEK_PURE=1 measures the walk's .py file even if it is compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import timeit
from collections.abc import Callable
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "protocol" / "record_walk.py"
NOW = 1_700_000_000_000
RECORDS = 163


def use_source() -> None:
    spec = spec_from_file_location("odradek.protocol.record_walk", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["odradek.protocol.record_walk"] = module
    spec.loader.exec_module(module)


def microseconds(run: Callable[[], object]) -> float:
    timer = timeit.Timer(run)
    number, _ = timer.autorange()
    return min(timer.repeat(5, number)) / number * 1e6


def measure() -> dict[str, float | str]:
    from odradek.protocol import record_walk
    from odradek.protocol.records import BatchValidation, Compression, Record, build_batch

    chance = random.Random(1)
    records = [Record(index, NOW + index, None, bytes(chance.choices(b"abcdefgh  ", k=90))) for index in range(RECORDS)]
    plain = build_batch(records)

    def validate(batch: bytes) -> None:
        BatchValidation(batch, now_ms=NOW, partition_leader_epoch=0, api_version=9).at_once().place(9, 0)

    rows: dict[str, float | str] = {"form": Path(record_walk.__file__ or "").suffix}
    walk = microseconds(lambda: record_walk.RecordWalk(plain, 61, len(plain), RECORDS).take(RECORDS))
    rows["walk, ns per record"] = walk / RECORDS * 1000
    for codec in Compression:
        batch = build_batch(records, compression=codec)
        rows[f"{codec.name.lower()}, us per batch"] = microseconds(partial(validate, batch))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record_validation", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    as_json = parser.parse_args().json
    if os.environ.get("ODRADEK_PURE") == "1":
        use_source()
    rows = measure()
    if as_json:
        print(json.dumps(rows))
        return
    for name, value in rows.items():
        print(f"{name:28} {value if isinstance(value, str) else f'{value:10.1f}'}")


if __name__ == "__main__":
    main()
