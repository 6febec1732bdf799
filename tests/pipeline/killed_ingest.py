"""Runs a job, and kills its own process group when a point of a batch is reached: the driver of the placed kills.

    python -m tests.pipeline.killed_ingest SETTINGS.json POINT [TIMES] [JOB] [standby]

POINT is one that the job's `run` reports ("rows: files written"); the kill comes when it has been reached
TIMES times. With POINT "-" nothing is killed. Several pipelines, a list in SETTINGS.json, take turns. With `standby`
Spark starts at once, and the job when stdin ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from odradek.pipeline.jobs import backfill, ingest, redrive
from odradek.pipeline.settings import make_settings
from odradek.pipeline.spark.session import open_session


def main() -> int:
    content = json.loads(Path(sys.argv[1]).read_text())
    pipelines = [make_settings(one) for one in (content if isinstance(content, list) else [content])]
    settings = pipelines[0]
    point, left = sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1

    def reached(now: str) -> None:
        nonlocal left
        left -= now == point
        if now == point and left == 0:
            os.killpg(os.getpgrp(), signal.SIGKILL)

    if "standby" in sys.argv[4:]:
        open_session(settings)
        sys.stdin.read()
    if len(pipelines) > 1:
        return ingest.run_all(pipelines, reached)
    if "redrive" in sys.argv[4:]:
        return redrive.run(settings, reached=reached)
    run = backfill.run if "backfill" in sys.argv[4:] else ingest.run
    return run(settings, reached)


if __name__ == "__main__":
    sys.exit(main())
