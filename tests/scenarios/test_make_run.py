"""`make run` as users and services run it: its output, and a clean end on SIGTERM to its process group.

The set-up is skipped, and the port and the directory are the test's; everything else is from the Makefile.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kafka
import pytest

from odradek.protocol.topic_partition import TopicPartition
from tests.patience import PATIENCE_S
from tests.wire import requests
from tests.wire.blocking_client import RawClient
from tests.wire.frames import request_payload

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    if shutil.which("make") is None:
        pytest.skip("make is not on this machine")
    odradek = tmp_path / "bin" / "odradek"
    odradek.parent.mkdir()
    odradek.write_text(f'#!/bin/sh\nexec {sys.executable} -m odradek.cli "$@" --port 0 --data-dir {tmp_path}/data\n')
    odradek.chmod(0o755)
    stamp = tmp_path / "installed"
    stamp.touch()
    process = subprocess.Popen(
        ["make", "run", f"BIN={odradek.parent}", f"STAMP={stamp}"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))},
    )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_make_run_serves_and_ends_within_ten_seconds_of_sigterm(
    make_run: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert make_run.stdout is not None
    word, bootstrap = make_run.stdout.readline().split()
    assert word == "ready"
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    assert producer.send("t", b"value").get(timeout=PATIENCE_S).offset == 0
    producer.close()
    with RawClient(bootstrap, timeout=PATIENCE_S) as waiting:
        waiting.send(
            request_payload(
                requests.fetch(
                    (TopicPartition("t", 0), 1), max_wait_ms=600_000, max_bytes=0x7FFFFFFF, partition_bytes=100
                ),
                11,
            )
        )
        os.killpg(make_run.pid, signal.SIGTERM)
        assert waiting.receive(), "what is parked is answered"
        out, err = make_run.communicate(timeout=PATIENCE_S)
    assert out == ""
    assert "Traceback" not in err
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
