"""`odradek pipeline`: loads topics into lake tables with PySpark. A job is a module of pipeline.jobs, loaded lazily."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.cli.errors import CommandError
from odradek.cli.extras import require_extra
from odradek.cli.options import assignments, command

if TYPE_CHECKING:
    from odradek.pipeline.settings import Settings

JOBS = {
    "ingest": "write topics into tables, batch by batch",
    "backfill": "load existing records into the same tables, up to where ingest begins",
    "redrive": "judge dead letters again, after a fix, and write those that are good now",
    "compact": "merge small files and remove old versions",
    "sql": "query the tables and print the result, without Spark",
    "report": "report lag, rates, dead letters and files, as a page and as JSON",
    "doctor": "check Java, jars, lake, broker, topics and state, and suggest fixes",
}
"""The jobs and their descriptions in `--help`."""

EXAMPLES = """  odradek pipeline ingest --settings orders.toml
  odradek pipeline ingest --topics orders --schema 'id LONG, at TIMESTAMP' --event-time at --lake ./lake
  odradek pipeline redrive --settings orders.toml --reason wrong_type --dry-run
  odradek pipeline report --settings orders.toml
  odradek pipeline sql "SELECT * FROM rows LIMIT 10" --settings orders.toml
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `pipeline` and its jobs."""
    parser = command(subparsers, "pipeline", "load topics into lake tables with PySpark", _help, examples=EXAMPLES)
    jobs = parser.add_subparsers(dest="job", metavar="JOB", title="jobs", required=True)
    for name, summary in JOBS.items():
        query = ' "SELECT count(*) FROM rows"' if name == "sql" else ""
        examples = f"  odradek pipeline {name}{query} --settings orders.toml\n"
        job = command(jobs, name, summary, run, examples=examples)
        if query:
            tables = "rows, dead_letters, late, windows, redriven and ledger"
            job.add_argument("query", metavar="QUERY", help=f"a query of the tables {tables}, in DataFusion's SQL")
        if name == "redrive":
            _add_selection(job)
        add_settings(job)


def _add_selection(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `redrive`, which are none of the settings."""
    reason = "only letters of this reason; may be repeated"
    parser.add_argument("--reason", action="append", default=[], metavar="REASON", help=reason)
    for option, edge in (("--from", "at or after"), ("--to", "before")):
        text = f"only records with a timestamp {edge} this time: 2026-11-29T08:30:00Z"
        parser.add_argument(option, dest=f"redrive_{option[2:]}", default="", metavar="TIME", help=text)
    parser.add_argument("--dry-run", action="store_true", help="print what would become of the letters; change nothing")


def _arguments_of(arguments: argparse.Namespace) -> tuple[Any, ...]:
    """Returns what the job takes besides the settings."""
    if arguments.job == "sql":
        return (arguments.query,)
    if arguments.job == "redrive":
        return (arguments.reason, arguments.redrive_from, arguments.redrive_to, arguments.dry_run)
    return ()


def _help(arguments: argparse.Namespace) -> int:
    raise CommandError(f"pipeline needs a job: {', '.join(JOBS)}")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Adds --settings, and a flag for each row of the settings table."""
    from odradek.pipeline.settings import OPTION_TABLES, Settings, flag

    parser.add_argument("--settings", type=Path, metavar="FILE", help="a TOML file; flags override it")
    for one in dataclasses.fields(Settings):
        if one.name in OPTION_TABLES:
            text = f"an option of [{one.name}]; may be repeated"
            parser.add_argument(f"--{one.name}", action="append", default=[], metavar="NAME=VALUE", help=text)
            continue
        kind = int if isinstance(one.default, int) else str
        text = one.metadata["help"] + ("; several, separated by commas" if isinstance(one.default, tuple) else "")
        choices = one.metadata["choices"] or None
        metavar = None if choices else one.metadata["metavar"] or "TEXT"
        text = text.replace("%", "%%")  # argparse expands it
        parser.add_argument(f"--{flag(one.name)}", type=kind, choices=choices, metavar=metavar, help=text)


def run(arguments: argparse.Namespace) -> int:
    """Runs one job; returns its exit status."""
    from odradek.pipeline.sections import pipelines_of
    from odradek.pipeline.settings import OPTION_TABLES, Settings, read_settings
    from odradek.pipeline.variables import hidden

    flags: dict[str, Any] = {}
    for one in dataclasses.fields(Settings):
        value = getattr(arguments, one.name)
        if one.name in OPTION_TABLES:
            flags[one.name] = assignments(value, f"--{one.name}")
        elif value is not None:
            flags[one.name] = value
    pipelines = pipelines_of(read_settings(arguments.settings) if arguments.settings else {}, flags)
    if arguments.job != "doctor":  # doctor checks the packages itself
        require_extra("spark")
    try:
        job = importlib.import_module(f"odradek.pipeline.jobs.{arguments.job}")
        return _run(job, pipelines, *_arguments_of(arguments))
    except Exception as error:
        secrets = frozenset().union(*(one.secrets for one in pipelines))
        if (text := hidden(str(error), secrets)) != str(error):
            raise CommandError(text) from None
        raise


def _run(job: Any, pipelines: Sequence[Settings], *more: Any) -> int:
    """Runs a job for one pipeline, or for several: together if it can, else one after the other."""
    if len(pipelines) == 1:
        return int(job.run(pipelines[0], *more) or 0)
    if hasattr(job, "run_all"):
        return int(job.run_all(pipelines))
    from odradek.pipeline.jobs.turns import each

    def run_one(settings: Settings) -> int:
        print(f"== {settings.name}", flush=True)
        return int(job.run(settings, *more) or 0)

    return each(pipelines, run_one)
