"""A driver that runs one job after the other in one session, and pauses at given points.

    python -m tests.pipeline.cluster.cluster_job MASTER

Each line of stdin is a job: {"job": "ingest", "settings": {...}, "pause": ["read", 2]}. The driver prints a line of
JSON when it has reached that point for the second time, and continues at the next line of stdin. It prints another,
{"status": ...} or {"error": ...}, when the job has ended. Leases are short, so that a killed driver's expires soon.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Callable
from typing import Any

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings, make_settings
from odradek.pipeline.spark.session import open_session
from odradek.pipeline.state import lock
from tests.pipeline.cluster.namespaced_cluster import SESSION_OPTIONS

lock.LEASE_S, lock.RENEWED_S = 3.0, 0.5


def say(**message: Any) -> None:
    print(json.dumps(message), file=sys.__stdout__, flush=True)


def pausing(point: str, times: int) -> Callable[[str], None]:
    left = times

    def reached(now: str) -> None:
        nonlocal left
        left -= now == point
        if now == point and left == 0:
            say(reached=point)
            sys.stdin.readline()

    return reached


def run(job: str, settings: dict[str, Any], pause: tuple[str, int] = ("", 0)) -> None:
    """Runs the job and prints how it ended."""
    module = importlib.import_module(f"odradek.pipeline.jobs.{job}")
    more = [pausing(*pause)] if job in ("ingest", "backfill") else []
    sys.stdout = io.StringIO()
    try:
        say(status=module.run(make_settings(settings), *more), out=sys.stdout.getvalue())
    except PipelineError as error:
        say(error=str(error))


def main() -> None:
    open_session(Settings(name="cluster", master=sys.argv[1]), SESSION_OPTIONS)
    say(ready=True)
    while line := sys.stdin.readline():
        run(**json.loads(line))


if __name__ == "__main__":
    main()
