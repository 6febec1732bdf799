"""The cleaner process on its own."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from odradek.storage.cleaner.job import CleanJob, SourceSegment

ROOT = Path(__file__).resolve().parents[3]
PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-m", "odradek.storage.cleaner.worker"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere it ends with its input")
def test_the_process_ends_with_the_broker_even_if_its_input_is_still_open(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdin is not None
    assert parent.stdout is not None
    by_force = threading.Timer(20, parent.stdin.close)
    by_force.start()
    try:
        parent.stdin.write(job_without_files(tmp_path).to_json().encode() + b"\n")
        parent.stdin.flush()
        assert b"No such file" in parent.stdout.readline()
        parent.kill()
        parent.wait()
        assert parent.stdout.read() == b""
        assert not parent.stdin.closed
    finally:
        by_force.cancel()
        parent.kill()
        parent.stdin.close()
        parent.stdout.close()


def job_without_files(directory: Path) -> CleanJob:
    return CleanJob(
        directory=str(directory),
        segments=[SourceSegment(0, 1, 100, 0, 0, 0)],
        first_dirty_offset=0,
        upper_bound_offset=1,
        now_ms=0,
        delete_retention_ms=0,
        segment_bytes=1000,
        segment_index_bytes=1000,
        index_interval_bytes=4096,
        max_decompressed_bytes=1000,
        map_bytes=1000,
        chunk_bytes=1000,
        aborted=[],
        producers={},
    )
