"""The way in which a test ends that its time limit does not end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HANGS = """
import signal, time
import pytest

@pytest.mark.timeout(1)
def test_that_hears_no_alarm():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    time.sleep(60)

def test_that_comes_next():
    pass
"""
RUN = """
import sys
import pytest
from tests import hangs
hangs.GRACE_S = 1
sys.exit(pytest.main(["-p", "tests.kinds", "-p", "tests.hangs", "--numprocesses=0", *sys.argv[1:]]))
"""


def test_a_test_that_hears_no_alarm_ends_with_its_process(tmp_path: Path) -> None:
    file = tmp_path / "test_hanging.py"
    file.write_text(HANGS)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    command = [sys.executable, "-c", RUN, "--rootdir", str(tmp_path), str(file)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert run.returncode == 1, run.stdout
    assert "test_that_hears_no_alarm" in run.stderr
    assert "passed" not in run.stdout
