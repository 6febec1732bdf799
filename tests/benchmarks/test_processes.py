"""What the benchmarks ask the kernel of other processes."""

import os
import subprocess
import sys

from benchmarks.processes import children_of


def test_a_child_counts_until_it_has_been_waited_for() -> None:
    before = set(children_of(os.getpid()))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert set(children_of(os.getpid())) - before == {child.pid}
    assert child.pid not in children_of(os.getpid())
