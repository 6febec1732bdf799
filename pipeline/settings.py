"""What a pipeline is told: one table, from which come the settings file, the flags and the page in docs/.

A settings file is TOML with the names below (dashes and underscores are alike), and three tables of free options:

    name = "orders"
    topics = ["orders"]
    schema = "id LONG, customer STRING, amount DOUBLE, at TIMESTAMP"
    event-time = "at"
    dedup-keys = ["id"]

    [kafka]    # to the connector's consumers, as `kafka.NAME`
    [store]    # to the object store, as delta-rs names them: aws_endpoint, allow_http ...
    [spark]    # to the session, as they stand

A flag goes over the file, the file over the defaults. An unknown name and a value that cannot be are errors.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import PipelineError


def setting(default: Any, what: str, *, choices: tuple[str, ...] = (), least: int = 0, metavar: str = "") -> Any:
    """A field of the table: its default, its sentence, and the values that it may have."""
    metadata = {"help": what, "choices": choices, "least": least, "metavar": metavar}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """One pipeline. Raises PipelineError when two settings do not go together."""

    # Who and where.
    name: str = setting("pipeline", "names the tables, the state, the shadow group; letters, digits, . _ -")
    lake: str = setting(
        "lake", "where the tables are: a directory, or s3://BUCKET/PREFIX and its like", metavar="PLACE"
    )
    state: str = setting("", "where the ledger and the plans are (default LAKE/_NAME)", metavar="PLACE")
    master: str = setting(
        "", "Spark's master (default: spark-submit's, that of spark-defaults.conf, or local[*])", metavar="URL"
    )
    driver_memory: str = setting(
        "", "the heap of Spark's driver: 2g (default: a quarter of the machine's memory, from 1g to 8g)", metavar="SIZE"
    )
    bootstrap_server: str = setting("127.0.0.1:9092", "the brokers, with commas between", metavar="HOST:PORT")

    # What is read.
    topics: tuple[str, ...] = setting((), "topics to read", metavar="TOPIC")
    topics_pattern: str = setting("", "a Java regular expression of topic names instead", metavar="REGEX")
    starting_offsets: str = setting("earliest", "where a new ingest begins: earliest, latest, or Spark's JSON")
    isolation_level: str = setting(
        "read_committed",
        "whether open and aborted transactions are seen",
        choices=("read_committed", "read_uncommitted"),
    )
    max_offsets_per_trigger: int = setting(1_000_000, "at most so many offsets a batch; 0: no limit", metavar="N")
    backfill_from: str = setting("topics", "where a backfill reads history", choices=("topics", "segments"))
    log_dirs: tuple[str, ...] = setting((), "the log.dirs of a broker, to backfill from segments", metavar="DIR")
    trigger: str = setting("available-now", "available-now, or the time between batches: '10 seconds'")
    on_data_loss: str = setting("fail", "when offsets are gone before they were read", choices=("fail", "continue"))
    on_recreated_topic: str = setting("fail", "when a topic was deleted and made again", choices=("fail", "continue"))

    # How it is understood.
    format: str = setting("json", "what values hold", choices=("json", "avro", "protobuf", "raw"))
    schema: str = setting("", "the rows: DDL ('id LONG, at TIMESTAMP') for JSON, an .avsc for Avro; itself, or @FILE")
    message_name: str = setting("", "Protobuf's message; `schema` is then @FILE of descriptors")
    required: tuple[str, ...] = setting((), "columns that may not be null", metavar="COLUMN")
    unknown_fields: str = setting(
        "ignore",
        "JSON fields that the schema lacks: ignored, the row kept with its raw text, or the row rejected",
        choices=("ignore", "keep", "reject"),
    )
    event_time: str = setting(
        "",
        "the column of the event time, TIMESTAMP or LONG of milliseconds (default: the record's timestamp)",
    )
    dedup_keys: tuple[str, ...] = setting(
        (), "columns that name an event, and so are required; empty: no de-duplication", metavar="COLUMN"
    )
    watermark_delay: str = setting(
        "10 minutes", "how late an event may come; two events of one key are one if no more time is between them"
    )
    late_rows: str = setting(
        "drop",
        "rows that come too late: counted and dropped, or kept in a table of their own",
        choices=("drop", "keep"),
    )
    max_future: str = setting(
        "1 hour", "an event dated later than now by more than this is a dead letter (in_future); empty: none is"
    )
    window: str = setting("", "the length of event-time windows: '1 minute'; empty: no windows")
    window_slide: str = setting("", "the step of sliding windows (default: tumbling)")
    window_by: tuple[str, ...] = setting((), "columns that windows are counted by", metavar="COLUMN")
    window_sums: tuple[str, ...] = setting((), "columns that windows sum, beside the count", metavar="COLUMN")

    # Where it goes.
    sink: str = setting("delta", "the tables' format", choices=("delta", "parquet"))
    partition_by: tuple[str, ...] = setting((), "columns that the table is partitioned by", metavar="COLUMN")
    files_per_batch: int = setting(
        0,
        "tasks that write a batch, each a file, or those of its partitions; 0: one for 250,000 rows, up to all cores",
        metavar="N",
    )
    results_topic: str = setting("", "a topic that gets the good rows as JSON, exactly once", metavar="TOPIC")
    shadow_group: str = setting("", "the consumer group that shows the progress (default odradek-NAME)")
    job_version: str = setting("1", "written beside each dead letter")

    # What `compact` makes of it.
    compact_target_size: int = setting(134_217_728, "compact makes files of about this size", least=1, metavar="BYTES")
    compact_retention: str = setting("7 days", "how long files of old versions stay for their readers")

    kafka: Mapping[str, str] = field(default_factory=dict)
    store: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}", self.name):
            raise PipelineError(f"name {self.name!r} must be 1-101 letters, digits, '.', '_' or '-'")
        if self.backfill_from == "segments" and not self.log_dirs:
            raise PipelineError("backfill-from is segments, and no log-dirs are given", "name the broker's log.dirs")
        if self.topics and self.topics_pattern:
            raise PipelineError("topics and topics-pattern exclude each other", "give one of them")
        for text, name in ((self.watermark_delay, "watermark-delay"), (self.max_future, "max-future")):
            if text or name == "watermark-delay":
                duration(text, name)
        for one in dataclasses.fields(self):
            choices = one.metadata.get("choices")
            if choices and getattr(self, one.name) not in choices:
                raise PipelineError(f"{flag(one.name)} is {getattr(self, one.name)!r}, not one of {', '.join(choices)}")

    @property
    def group(self) -> str:
        """The shadow consumer group."""
        return self.shadow_group or f"odradek-{self.name}"

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """topics-pattern; None where there is none, or Python cannot read Java's expression."""
        try:
            return re.compile(self.topics_pattern) if self.topics_pattern else None
        except re.error:
            return None


OPTION_TABLES = ("kafka", "store", "spark")
"""Names of free options: tables in the file, `--kafka NAME=VALUE` among the flags."""


def flag(name: str) -> str:
    """A setting as people write it: with dashes."""
    return name.replace("_", "-")


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a TOML file, checked for their names and kinds. Raises PipelineError."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise PipelineError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise PipelineError(f"the settings file {path} is not TOML: {error}") from error
    return {name.replace("-", "_"): value for name, value in content.items()}


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Settings of plain values, as a file or flags give them. Raises PipelineError."""
    fields = {one.name: one for one in dataclasses.fields(Settings)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in fields:
            raise PipelineError(f"there is no setting {flag(name)!r}", _meant(name, fields))
        values[name] = _value(name, value, fields[name])
    return Settings(**values)


def _meant(name: str, names: Iterable[str]) -> str:
    alike = difflib.get_close_matches(name, names, 1)
    return f"did you mean {flag(alike[0])}?" if alike else "`odradek pipeline ingest --help` lists them"


def _value(name: str, value: object, field: dataclasses.Field[Any]) -> object:
    default = field.default
    if name in OPTION_TABLES:
        if not isinstance(value, Mapping):
            raise PipelineError(f"{name} must be a table of options")
        return {str(option): _option(content) for option, content in value.items()}
    if isinstance(default, tuple):
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
            return tuple(value)
        raise PipelineError(f"{flag(name)} must be a list of texts")
    if isinstance(default, int):
        least = field.metadata["least"]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise PipelineError(f"{flag(name)} must be a number from {least} up, not {value!r}")
        return value
    if not isinstance(value, str):
        raise PipelineError(f"{flag(name)} must be a text, not {value!r}")
    return value


def _option(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
