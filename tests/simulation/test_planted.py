"""The simulation finds planted bugs by what clients and operators see. A bug is planted in sources, not in compiled
modules, so each runs in a process of its own. A seed finds a bug on one state of the sources; a few more are tried when
they have changed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.planted import BUGS, HARDSHIPS

ROOT = Path(__file__).parents[2]
FOUND_FROM = {
    "acknowledge before the ISR has it": 1,
    "truncate to the high watermark instead of by epoch": 1,
    "never find that logs diverge": 1,
    "a follower acknowledges before its flush": 3,
    "wait for the committed instead of the maximal ISR": 2,
    "a smaller ISR counts before the controller has it": 3,
    "acknowledge after the leadership is lost": 2,
    "no epoch check in Fetch": 1,
    "no epoch check in LeaderAndIsr": 10,
    "LeaderAndIsr is applied out of order": 5,
    "no epoch check in the store": 6,
    "one's own change is taken for another's": 1,
    "a restarted broker is trusted in the same epoch": 2,
    "append duplicates": 1,
    "a follower's high watermark is not truncated": 1,
    "producer state is not truncated": 9,
    "a follower does not note producers": 1,
    "read_committed reads to the high watermark": 1,
    "aborted transactions are not listed": 1,
    "an unknown partition is treated as deleted": 1,
    "offsets count before their transaction has committed": 1,
    "a coordinator begins without the offsets in its log": 1,
    "offsets are stored by the leader alone": 1,
    "a follower joins the ISR while it is behind": 1,
    "InitProducerId does not raise the epoch": 1,
    "commits of an old generation are accepted": 2,
    "a coordinator answers from uncommitted records": 1,
    "compaction removes the last record of a key": 1,
    "a replica moves without the end of its log": 1,
    "settings that other brokers change are not applied": 1,
    "settings that were missed in a lost session are not read": 1,
    "watches are lost with the connection": 1,
    "an answer comes before its event": 1,
    "reads do not wait for a sync": 2,
    "a change of any size is sent": 1,
    "a call is sent in the next session": 1,
    "names count changes, not creations": 1,
    "a broker that stops gives its leadership to any replica": 2,
    "a broker that stops may become leader": 2,
    "a preferred leader need not be in sync": 1,
    "the last in-sync replica is forgotten": 1,
    "an election does not raise the epoch": 1,
    "proposals of an old leader epoch are accepted": 1,
    "proposals of an old partition epoch are accepted": 1,
    "proposals of a broker that does not lead are accepted": 1,
    "proposals of an old registration are accepted": 1,
    "a broker that is dead joins the ISR": 2,
    "a reassignment completes before its target is in sync": 1,
    "a replaced reassignment begins from all replicas": 1,
    "a topic is deleted without the brokers that are dead": 1,
    "the mark of a deletion is removed when it starts": 1,
    "a leader commits before its own flush": 3,
    "a login needs no proof": 16,
    "a session does not end": 16,
    "anybody may fetch as a follower": 16,
    "rules that were missed in a lost session are not read": 1,
    "other brokers keep the last rule of a pattern": 1,
    "an addition replaces the rules that are there": 1,
    "the last rule of a pattern stays in the store": 1,
    "decisions are remembered when rules change": 1,
    "an allowance comes before a denial": 5,
    "an allowance of all operations allows none": 1,
    "what is denied is written all the same": 1,
    "a deleted password stays": 2,
    "passwords count long after they are confirmed": 1,
    "passwords that other brokers change are not applied": 1,
    "markers of an earlier coordinator are accepted": 2,
    "records are written without verification": 1,
    "offsets are committed without verification": 1,
    "a decision in the log is not carried out": 1,
    "a commit in the log is carried out as an abort": 1,
    "a timeout does not fence the producer": 1,
    "a transaction may be open for ever": 1,
    "blocks of producer ids are not stored": 1,
    "a transaction is stable before its marker is replicated": 1,
    "markers that could not be written count": 1,
    "partitions are added in memory alone": 1,
    "a replaced producer may end the transaction": 2,
    "completions are not loaded": 1,
    "SyncGroup is accepted in any generation": 1,
    "offsets expire too early": 2,
    "offsets do not expire": 1,
    "deletions are not loaded": 1,
    "offsets of aborted transactions count": 1,
    "a coordinator of groups does not hear of markers": 1,
    "assignments are kept in memory alone": 1,
    "the last member leads a loaded group": 1,
    "a static member is replaced in memory alone": 1,
    "a replaced static member may commit": 1,
    "recovery does not note producers": 1,
    "recovery does not index batches": 1,
    "leader epochs are not truncated": 1,
    "indexes are not truncated": 1,
    "snapshots of what was truncated stay": 1,
    "a roll does not index the largest time": 1,
    "a snapshot lacks producers with an open transaction": 1,
    "compaction removes markers before their records": 1,
    "compaction removes markers before their horizon": 1,
    "compaction goes beyond the last stable offset": 2,
    "compaction counts aborted records": 1,
    "retention by size deletes one segment more": 1,
    "a follower does not take over the log's start": 1,
    "a deletion is confirmed by the leader alone": 1,
    "a sync that has failed is tried again": 4,
    "a failed disk takes all replicas offline": 1,
}
"""The recorded seed of each bug."""
BY_ONE_KIND = {
    "an unknown partition is treated as deleted": ("return alone, with", 3),
    "markers of an earlier coordinator are accepted": ("hold markers, with", 3),
    "a restarted broker is trusted in the same epoch": ("restart the controller", 20),
}
"""Bugs that hardly a seed with faults of all kinds shows, since others come between. Each is found among so many faults
of one kind."""
SHOWN_IN = {
    "a broker leads before it knows all partitions": "an unknown partition is treated as deleted",
    "LeaderAndIsr arrives again, late": "LeaderAndIsr is applied out of order",
}
"""Of each hardship, the bug that includes it."""
FURTHER_SEEDS = 19


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", "--brokers", "3", *options]
    environment = {**os.environ, "ODRADEK_PURE": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def faults_for(bug: str) -> list[str]:
    """The options that say which faults find a bug."""
    if bug not in BY_ONE_KIND:
        return []
    kind, number = BY_ONE_KIND[bug]
    return ["--kind", kind, "--faults", str(number)]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FOUND_FROM)
def test_a_planted_bug_is_found(name: str) -> None:
    first = FOUND_FROM[name]
    ended = run("--bug", name, "--seeds", f"{first}-{first + FURTHER_SEEDS}", *faults_for(name))
    assert ended.returncode == 1, ended.stderr[-2000:]
    assert "raised at" not in ended.stdout, "the invariants should find it, not a crash"
    assert re.search("^    [a-z ]+: ", ended.stdout, re.MULTILINE), ended.stdout[-2000:]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("hardship", "bug"), SHOWN_IN.items())
def test_a_hardship_alone_breaks_nothing(hardship: str, bug: str) -> None:
    ended = run("--bug", hardship, "--seeds", str(FOUND_FROM[bug]), *faults_for(bug))
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]


def test_every_bug_has_a_recorded_seed() -> None:
    assert FOUND_FROM.keys() == BUGS.keys()
    assert SHOWN_IN.keys() == HARDSHIPS.keys()
