"""The settings of a pipeline: one table that defines the settings file, the flags and the page in docs/.

A settings file is TOML with the names below (dashes and underscores are equivalent), and tables of free options:

    name = "orders"
    topics = ["orders"]
    schema = "id LONG, customer STRING, amount DOUBLE, at TIMESTAMP"
    event-time = "at"
    dedup-keys = ["id"]

    [columns]  # derived columns, as SQL expressions
    [rules]    # conditions on rows, as SQL expressions
    [kafka]    # for the connector's consumers, as `kafka.NAME`
    [store]    # for the object store, as delta-rs names them: aws_endpoint, allow_http ...
    [iceberg]  # for the catalog of Iceberg tables, as pyiceberg names them
    [spark]    # for the session, unchanged

Flags override the file, and the file overrides the defaults. Unknown names and invalid values are errors. Values
in the file may have variables of the environment: ${env:NAME} (variables.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.pipeline.durations import duration
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.variables import FromEnvironment, resolved, secrets_of


def setting(default: Any, what: str, *, choices: tuple[str, ...] = (), least: int = 0, metavar: str = "") -> Any:
    """Declares a setting: its default, its description, and its valid values."""
    metadata = {"help": what, "choices": choices, "least": least, "metavar": metavar}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one pipeline. Raises PipelineError if two settings contradict each other."""

    # Identity and locations.
    name: str = setting("pipeline", "name for the tables, the state and the shadow group; letters, digits, . _ -")
    lake: str = setting(
        "lake", "location of the tables: a directory, or an object store such as s3://BUCKET/PREFIX", metavar="PLACE"
    )
    state: str = setting("", "location of the ledger and the plans (default LAKE/_NAME)", metavar="PLACE")
    master: str = setting(
        "", "Spark master (default: from spark-submit or spark-defaults.conf, else local[*])", metavar="URL"
    )
    driver_memory: str = setting(
        "", "heap of the Spark driver: 2g (default: a quarter of the machine's memory, 1g to 8g)", metavar="SIZE"
    )
    bootstrap_server: str = setting("127.0.0.1:9092", "broker addresses, separated by commas", metavar="HOST:PORT")

    # Input.
    topics: tuple[str, ...] = setting((), "topics to read", metavar="TOPIC")
    topics_pattern: str = setting("", "Java regular expression of topic names, in place of topics", metavar="REGEX")
    starting_offsets: str = setting("earliest", "where a new ingest starts: earliest, latest, or Spark's JSON")
    isolation_level: str = setting(
        "read_committed",
        "whether records of open and aborted transactions are read",
        choices=("read_committed", "read_uncommitted"),
    )
    max_offsets_per_trigger: int = setting(1_000_000, "maximum offsets per batch; 0: no limit", metavar="N")
    backfill_from: str = setting("topics", "source of the history of a backfill", choices=("topics", "segments"))
    log_dirs: tuple[str, ...] = setting((), "log.dirs of the broker, for a backfill from segments", metavar="DIR")
    trigger: str = setting("available-now", "available-now, or the interval between batches: '10 seconds'")
    on_data_loss: str = setting("fail", "if offsets were deleted before they were read", choices=("fail", "continue"))
    on_recreated_topic: str = setting("fail", "if a topic was deleted and recreated", choices=("fail", "continue"))

    # Parsing.
    format: str = setting("json", "format of record values", choices=("json", "avro", "protobuf", "raw"))
    schema: str = setting("", "the rows: DDL ('id LONG, at TIMESTAMP') for JSON, an .avsc for Avro; inline, or @FILE")
    message_name: str = setting(
        "",
        "name of the Protobuf message in `schema`, @FILE of a descriptor set; with a registry, by default its first",
    )
    schema_registry: str = setting(
        "",
        "schema registry with Confluent's API: values are in its frame, and the columns are those of their schemas",
        metavar="URL",
    )
    schema_registry_login: str = setting(
        "", "login of the registry (default: ODRADEK_SCHEMA_REGISTRY_LOGIN)", metavar="USER:PASSWORD"
    )
    schema_registry_ca: str = setting(
        "", "PEM file of the authority of the registry's certificate (default: those of the system)", metavar="FILE"
    )
    schema_subjects: tuple[str, ...] = setting(
        (), "subjects with the columns before any record was read (default: TOPIC-value)", metavar="SUBJECT"
    )
    required: tuple[str, ...] = setting((), "columns that may not be null", metavar="COLUMN")
    unknown_fields: str = setting(
        "ignore",
        "JSON fields that the schema lacks: ignore them, keep the raw text with the row, or reject the row",
        choices=("ignore", "keep", "reject"),
    )
    where: str = setting("", "SQL condition; other rows are left out, and counted as filtered", metavar="SQL")
    transform: str = setting(
        "",
        "Python function from DataFrame to DataFrame that changes or drops rows, after [columns] and where",
        metavar="MODULE:FUNCTION",
    )
    event_time: str = setting(
        "",
        "column of the event time, a TIMESTAMP or a LONG of milliseconds (default: the record's timestamp)",
    )
    dedup_keys: tuple[str, ...] = setting(
        (), "columns that identify an event, and so are required; empty: no de-duplication", metavar="COLUMN"
    )
    watermark_delay: str = setting(
        "10 minutes", "how late an event may be; rows of one key that are no further apart are the same event"
    )
    late_rows: str = setting(
        "drop",
        "rows that are too late: count and drop them, or keep them in a separate table",
        choices=("drop", "keep"),
    )
    max_future: str = setting(
        "1 hour", "an event whose time is further in the future is a dead letter (in_future); empty: no limit"
    )
    window: str = setting("", "length of event-time windows: '1 minute'; empty: no windows")
    window_slide: str = setting("", "slide interval of sliding windows (default: tumbling windows)")
    window_by: tuple[str, ...] = setting((), "columns by which windows are grouped", metavar="COLUMN")
    window_sums: tuple[str, ...] = setting((), "columns that windows sum, in addition to the count", metavar="COLUMN")

    # Output.
    sink: str = setting("delta", "format of the tables", choices=("delta", "iceberg", "parquet"))
    mode: str = setting(
        "append",
        "append each record as a row; or upsert, which keeps one row for each key and deletes it at a tombstone",
        choices=("append", "upsert"),
    )
    upsert_keys: tuple[str, ...] = setting(
        (), "columns that identify a row if mode is upsert, and so are required", metavar="COLUMN"
    )
    key_format: str = setting(
        "text",
        "record key of a tombstone: the text of the single column of upsert-keys, or a JSON object with all of them",
        choices=("text", "json"),
    )
    record_columns: tuple[str, ...] = setting(
        ("_topic", "_partition", "_offset", "_timestamp"),
        "columns of the record in the table of good rows; _key and _headers are possible, too",
        metavar="COLUMN",
    )
    partition_by: tuple[str, ...] = setting((), "columns by which the table is partitioned", metavar="COLUMN")
    files_per_batch: int = setting(
        0,
        "tasks that write a batch, each one file per partition; 0: one per 100,000 rows, at most one per core",
        metavar="N",
    )
    results_topic: str = setting("", "topic to which good rows are written as JSON, exactly once", metavar="TOPIC")
    shadow_group: str = setting("", "consumer group that shows the progress (default odradek-NAME)")
    job_version: str = setting("1", "version that is stored with each dead letter")

    # Monitoring.
    metrics_port: int = setting(
        -1,
        "port that serves an ingest's or a backfill's metrics to Prometheus; 0: any free port; -1: none",
        least=-1,
        metavar="PORT",
    )
    metrics_host: str = setting(
        "127.0.0.1", "address that serves the metrics; 0.0.0.0: all of this machine", metavar="HOST"
    )

    max_lag: str = setting("", "report: more unread offsets are an alarm; empty: no limit", metavar="OFFSETS")
    max_dead: str = setting(
        "", "report: more dead letters are an alarm: a count, or a share of the records as in 0.5%", metavar="LIMIT"
    )
    alarm_period: str = setting("1 day", "report: alarms about records concern batches that ended within this time")

    # Compaction.
    compact_target_size: int = setting(134_217_728, "approximate size of files after compact", least=1, metavar="BYTES")
    compact_retention: str = setting("7 days", "how long compact keeps the files of old versions for readers")

    columns: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)
    store: Mapping[str, str] = field(default_factory=dict)
    iceberg: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}", self.name):
            raise PipelineError(f"name {self.name!r} must have 1-101 letters, digits, '.', '_' or '-'")
        if self.backfill_from == "segments" and not self.log_dirs:
            raise PipelineError("backfill-from is segments, but log-dirs is empty", "set it to the broker's log.dirs")
        if self.topics and self.topics_pattern:
            raise PipelineError("topics and topics-pattern exclude each other", "set only one of them")
        if self.mode == "upsert":
            self._check_upsert()
        elif self.upsert_keys or self.key_format != "text":
            name = "upsert-keys" if self.upsert_keys else "key-format"
            raise PipelineError(f"{name} is set, but mode is {self.mode}", "set mode to upsert")
        for text, name in ((self.watermark_delay, "watermark-delay"), (self.max_future, "max-future")):
            if text or name == "watermark-delay":
                duration(text, name)
        duration(self.alarm_period, "alarm-period")
        if not re.fullmatch(r"\d*", self.max_lag):
            raise PipelineError(f"max-lag is {self.max_lag!r}, not a number of offsets", "set it to, say, 100000")
        if not re.fullmatch(r"(\d+|\d+(\.\d+)?%)?", self.max_dead):
            raise PipelineError(f"max-dead is {self.max_dead!r}, not a limit", "set it to, say, 1000 or 0.5%")
        for one in dataclasses.fields(self):
            choices = one.metadata.get("choices")
            if choices and getattr(self, one.name) not in choices:
                raise PipelineError(f"{flag(one.name)} is {getattr(self, one.name)!r}, not one of {', '.join(choices)}")

    def _check_upsert(self) -> None:
        """Raises PipelineError for settings that do not fit mode = upsert."""
        if not self.upsert_keys:
            raise PipelineError("mode is upsert, but upsert-keys is empty", "set it to the columns that identify a row")
        if self.key_format == "text" and len(self.upsert_keys) > 1:
            raise PipelineError("upsert-keys has several columns, but key-format is text", "set key-format to json")
        if self.sink == "parquet" or self.format == "raw":
            what = "the sink parquet" if self.sink == "parquet" else "the format raw"
            raise PipelineError(f"mode is upsert, which {what} does not support", "set another one")
        for name in ("dedup_keys", "window", "results_topic"):
            if getattr(self, name):
                problem = f"{flag(name)} is set, but mode is upsert: a row is then the state of a key, not an event"
                raise PipelineError(problem, "leave it empty, or set another pipeline with mode = append")

    @property
    def group(self) -> str:
        """The id of the shadow consumer group."""
        return self.shadow_group or f"odradek-{self.name}"

    @property
    def secrets(self) -> frozenset[str]:
        """What came from the environment, which nothing shows."""
        return secrets_of([getattr(self, one.name) for one in dataclasses.fields(self)])

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """topics-pattern, compiled. None if it is empty, or if Python cannot compile the Java expression."""
        try:
            return re.compile(self.topics_pattern) if self.topics_pattern else None
        except re.error:
            return None


OPTION_TABLES = {
    "columns": "derived columns: SQL expressions of the schema's columns and the record's",
    "rules": "SQL conditions on rows: `CONDITION`, `warn: CONDITION` or `fail above 1 %: CONDITION`",
    "kafka": "options of the connector's consumers",
    "store": "options of the object store, as delta-rs names them",
    "iceberg": "catalog of the Iceberg tables: its properties as pyiceberg names them, `catalog` and `namespace`",
    "spark": "options of the Spark session",
}
"""The settings with free options: tables in the file, and flags such as `--kafka NAME=VALUE`."""


def flag(name: str) -> str:
    """Returns a setting's name as users write it: with dashes."""
    return name.replace("_", "-")


def read_settings(path: Path, environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Reads a TOML file of settings, with the variables of the environment in their places. Raises PipelineError."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise PipelineError(f"the settings file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise PipelineError(f"the settings file {path} is not TOML: {error}") from error
    return {name.replace("-", "_"): resolved(value, name, environ) for name, value in content.items()}


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Returns Settings made of plain values, as in the file or the flags. Raises PipelineError."""
    fields = {one.name: one for one in dataclasses.fields(Settings)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in fields:
            raise PipelineError(f"unknown setting {flag(name)!r}", _meant(name, fields))
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
            parts = [part.strip() for part in value.split(",") if part.strip()]
            return tuple(map(value.with_value, parts) if isinstance(value, FromEnvironment) else parts)
        if isinstance(value, list | tuple) and all(isinstance(part, str) for part in value):
            return tuple(value)
        raise PipelineError(f"{flag(name)} must be a list of strings")
    if isinstance(default, int):
        least = field.metadata["least"]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise PipelineError(f"{flag(name)} must be a number from {least} up, not {value!r}")
        return value
    if name in ("max_lag", "max_dead") and type(value) is int:
        return str(value)
    if not isinstance(value, str):
        raise PipelineError(f"{flag(name)} must be a string, not {value!r}")
    return value


def _option(value: object) -> str:
    if isinstance(value, str):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)
