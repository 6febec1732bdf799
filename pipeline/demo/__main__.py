"""`python -m odradek.pipeline.demo`: a broker, a topic of orders, ingest, the tables, the report, a query whose result
is checked. Takes less than a minute on a quiet machine.

All files are in one directory (the argument, by default ./pipeline-demo), which is emptied first if a demo created it.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from odradek.pipeline.demo.shop import SCHEMA, Record, by_country, orders
from odradek.pipeline.demo.tables import show_tables
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.sql import queried
from odradek.pipeline.settings import make_settings, read_settings

TOPIC, PARTITIONS, RECORDS = "orders", 4, 20_000
MARK = ".pipeline-demo"
"""Marks a directory that a demo created and may empty."""
SETTINGS = """# The settings of the demo; try: odradek pipeline report --settings {file}
name = "orders"
lake = "{lake}"
bootstrap-server = "{bootstrap}"
topics = ["{topic}"]
max-offsets-per-trigger = {batch}

format = "json"
schema = "{schema}"
required = ["id", "at"]
event-time = "at"
dedup-keys = ["id"]
watermark-delay = "10 minutes"
window = "5 minutes"
window-by = ["country"]
window-sums = ["amount"]
"""


QUERY = """SELECT country, count(*) AS orders, round(sum(amount), 2) AS amount
FROM rows GROUP BY country ORDER BY country"""


def main() -> int:
    """Runs the demo. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m odradek.pipeline.demo", description="The pipeline from a topic to a query."
    )
    parser.add_argument("directory", nargs="?", type=Path, default=Path("pipeline-demo"))
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--sink", choices=("delta", "iceberg"), default="delta")
    arguments = parser.parse_args()
    try:
        directory = _emptied(arguments.directory.absolute())
        with _broker(directory / "broker") as bootstrap:
            settings = directory / "orders.toml"
            text = SETTINGS.format(
                file=settings,
                lake=directory / "lake",
                bootstrap=bootstrap,
                topic=TOPIC,
                schema=SCHEMA,
                batch=-(-arguments.records // 4),
            )
            if arguments.sink != "delta":
                text += f'sink = "{arguments.sink}"\n'
            settings.write_text(text)
            _print_step(f"broker on {bootstrap}, with its log in {directory / 'broker'}")
            _run("topics", "create", TOPIC, "--partitions", f"{PARTITIONS}", "--bootstrap-server", bootstrap)
            records = list(orders(Random(7), arguments.records, datetime.now(UTC) - timedelta(hours=2)))
            _produce(bootstrap, records)
            _print_step(f"{len(records)} records in topic {TOPIC}: orders, some duplicate, some late, some invalid")
            _run("pipeline", "ingest", "--settings", f"{settings}")
            show_tables(make_settings(read_settings(settings)), sys.stdout)
            _run("pipeline", "report", "--settings", f"{settings}")
            _run("groups", "describe", "odradek-orders", "--bootstrap-server", bootstrap)
            _run("pipeline", "sql", QUERY, "--settings", f"{settings}")
            _check(settings, records)
    except PipelineError as error:
        print(f"pipeline demo: {error}", file=sys.stderr)
        return 1
    _print_step(f"report: {directory / 'lake' / '_orders' / 'report.html'}; tables: {directory / 'lake'}")
    return 0


def _print_step(text: str) -> None:
    print(f"\n== {text}", flush=True)


def _emptied(directory: Path) -> Path:
    if directory.exists() and any(directory.iterdir()):
        if not (directory / MARK).exists():
            raise PipelineError(f"{directory} is not empty and not from a demo", "name another directory")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).touch()
    return directory


def _run(*arguments: str) -> None:
    print(f"\n$ odradek {shlex.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "odradek.cli", *arguments])
    if done.returncode != 0:
        raise PipelineError(f"odradek {' '.join(arguments[:2])} ended with status {done.returncode}")


@contextmanager
def _broker(data: Path) -> Iterator[str]:
    """Runs a broker on a free port. Yields HOST:PORT."""
    with (data.with_suffix(".log")).open("w") as log:
        command = [sys.executable, "-m", "odradek.cli", "serve", "--port", "0", "--data-dir", str(data)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            ready = process.stdout.readline().split()
            if ready[:1] != ["ready"]:
                raise PipelineError("the broker did not start", f"see {log.name}")
            yield ready[1]
        finally:
            process.terminate()
            process.wait()


def _check(file: Path, records: Sequence[Record]) -> None:
    """Compares the result of QUERY with the records. Raises PipelineError if they differ."""
    result = queried(make_settings(read_settings(file)), QUERY).to_pylist()
    found = [(row["country"], row["orders"], row["amount"]) for row in result]
    wanted = by_country(records)
    if found != wanted:
        raise PipelineError(f"the query returned {found}, but the records make {wanted}")
    _print_step("the result of the query equals a sum over the records that were produced")


def _produce(bootstrap: str, records: Sequence[Record]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=50, compression_type="lz4")
    for record in records:
        producer.send(TOPIC, record.value, key=record.key)
    producer.close()


if __name__ == "__main__":
    sys.exit(main())
