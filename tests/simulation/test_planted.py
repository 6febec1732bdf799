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
from tests.simulation.planted_in_access import ACCESS_BUGS
from tests.simulation.planted_in_consumer_groups import CONSUMER_GROUP_BUGS
from tests.simulation.planted_in_controllers import CONTROLLER_BUGS
from tests.simulation.planted_in_groups import GROUP_BUGS
from tests.simulation.planted_in_logins import LOGIN_BUGS
from tests.simulation.planted_in_logs import LOG_BUGS
from tests.simulation.planted_in_newer_transactions import NEWER_TRANSACTION_BUGS
from tests.simulation.planted_in_replicas import REPLICA_BUGS
from tests.simulation.planted_in_transactions import TRANSACTION_BUGS

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
    "no epoch check in LeaderAndIsr": 12,
    "LeaderAndIsr is applied out of order": 4,
    "no epoch check in the store": 6,
    "one's own change is taken for another's": 1,
    "a restarted broker is trusted in the same epoch": 3,
    "append duplicates": 1,
    "a follower's high watermark is not truncated": 3,
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
    "a broker that stops may become leader": 3,
    "a preferred leader need not be in sync": 1,
    "the last in-sync replica is forgotten": 1,
    "an election does not raise the epoch": 1,
    "proposals of an old leader epoch are accepted": 1,
    "proposals of an old partition epoch are accepted": 1,
    "proposals of a broker that does not lead are accepted": 1,
    "proposals of an old registration are accepted": 1,
    "a broker that is dead joins the ISR": 9,
    "a reassignment completes before its target is in sync": 1,
    "a replaced reassignment begins from all replicas": 1,
    "a topic is deleted without the brokers that are dead": 1,
    "the mark of a deletion is removed when it starts": 1,
    "a leader commits before its own flush": 3,
    "a login needs no proof": 16,
    "a session does not end": 18,
    "anybody may fetch as a follower": 16,
    "rules that were missed in a lost session are not read": 1,
    "an addition replaces the rules that are there": 1,
    "the last rule of a pattern stays in the store": 2,
    "decisions are remembered when rules change": 1,
    "an allowance comes before a denial": 19,
    "what is denied is written all the same": 1,
    "a deleted password stays": 2,
    "passwords count long after they are confirmed": 1,
    "passwords that other brokers change are not applied": 2,
    "markers of an earlier coordinator are accepted": 2,
    "records are written without verification": 1,
    "offsets are committed without verification": 1,
    "a decision in the log is not carried out": 1,
    "a commit in the log is carried out as an abort": 5,
    "a timeout does not fence the producer": 1,
    "a transaction may be open for ever": 1,
    "blocks of producer ids are not stored": 1,
    "a transaction is stable before its marker is replicated": 1,
    "markers that could not be written count": 1,
    "partitions are added in memory alone": 2,
    "a replaced producer may end the transaction": 2,
    "completions are not loaded": 1,
    "the end of a transaction keeps its epoch": 1,
    "records are accepted in any epoch": 2,
    "the end of a transaction is not given again": 1,
    "an epoch may begin in the midst": 1,
    "nothing can be committed": 1,
    "the version of a transaction is not loaded": 1,
    "SyncGroup is accepted in any generation": 1,
    "offsets expire too early": 2,
    "offsets do not expire": 2,
    "deletions are not loaded": 1,
    "offsets of aborted transactions count": 1,
    "a coordinator of groups does not hear of markers": 1,
    "assignments are kept in memory alone": 1,
    "the last member leads a loaded group": 1,
    "a static member is replaced in memory alone": 1,
    "a replaced static member may commit": 1,
    "a static member that is away owns nothing": 4,
    "a member need not give up what it loses": 1,
    "a member may keep for ever what it loses": 1,
    "members without heartbeats stay": 1,
    "commits of earlier epochs are accepted": 1,
    "heartbeats are accepted in any epoch": 1,
    "members that have left are loaded": 1,
    "resolved expressions are not loaded": 1,
    "targets are kept in memory alone": 1,
    "an assignor forgets a partition": 1,
    "groups do not see that topics change": 1,
    "a group begins anew when it becomes classic": 2,
    "recovery does not note producers": 2,
    "recovery does not index batches": 1,
    "leader epochs are not truncated": 1,
    "indexes are not truncated": 1,
    "snapshots of what was truncated stay": 2,
    "a roll does not index the largest time": 1,
    "a snapshot lacks producers with an open transaction": 1,
    "compaction removes markers before their records": 5,
    "compaction removes markers before their horizon": 1,
    "compaction goes beyond the last stable offset": 2,
    "compaction counts aborted records": 1,
    "retention by size deletes one segment more": 1,
    "a follower does not take over the log's start": 1,
    "a deletion is confirmed by the leader alone": 2,
    "a sync that has failed is tried again": 2,
    "a failed disk takes all replicas offline": 1,
}
"""The recorded seed of each bug."""
FOUND_BY = {
    "a broker that stops gives its leadership to any replica": "as in sync, who were not",
    "a broker that stops may become leader": "leads, and only|who stop or have no disk",
    "a preferred leader need not be in sync": "is not in sync",
    "the last in-sync replica is forgotten": "nobody is in sync",
    "an election does not raise the epoch": "in the same epoch|which the leader does not propose",
    "proposals of an old leader epoch are accepted": "proposed in leader epoch",
    "proposals of an old partition epoch are accepted": "proposed in partition epoch",
    "proposals of a broker that does not lead are accepted": "proposed by broker",
    "proposals of an old registration are accepted": "proposed in registration",
    "a broker that is dead joins the ISR": "have joined, and only",
    "a reassignment completes before its target is in sync": "have left",
    "a replaced reassignment begins from all replicas": "begins anew from",
    "a topic is deleted without the brokers that are dead": "is gone, and broker",
    "the mark of a deletion is removed when it starts": "is gone, and the topic is there",
    "a leader commits before its own flush": "has synced it up to",
    "a login needs no proof": "was answered without a proof",
    "a session does not end": "was answered after the end of its session",
    "anybody may fetch as a follower": "had no right to|is not pending",
    "markers of an earlier coordinator are accepted": "of a committed transaction was not read|was read, but its",
    "records are written without verification": "was accepted in",
    "offsets are committed without verification": "commit an offset late",
    "a decision in the log is not carried out": "has an open transaction from",
    "a commit in the log is carried out as an abort": "was not returned",
    "a timeout does not fence the producer": "its producer was not fenced",
    "a transaction may be open for ever": "be open for",
    "blocks of producer ids are not stored": "was given twice",
    "a transaction is stable before its marker is replicated": "that is open from",
    "markers that could not be written count": "and no marker since",
    "partitions are added in memory alone": "the partitions of transactional id",
    "a replaced producer may end the transaction": "was accepted under|has skipped an epoch",
    "completions are not loaded": "the state of transactional id",
    "the end of a transaction keeps its epoch": "has not raised the epoch",
    "records are accepted in any epoch": "behind a marker of epoch",
    "the end of a transaction is not given again": "was refused again",
    "an epoch may begin in the midst": "begin in the midst",
    "nothing can be committed": "commit nothing",
    "the version of a transaction is not loaded": "the version of transactional id",
    "SyncGroup is accepted in any generation": "was not turned away",
    "offsets expire too early": "has expired too early",
    "offsets do not expire": "has not expired",
    "deletions are not loaded": "a deleted offset of",
    "offsets of aborted transactions count": "too large an offset of",
    "a coordinator of groups does not hear of markers": "never ended",
    "assignments are kept in memory alone": "the assignments in group",
    "the last member leads a loaded group": "the leader of group",
    "a static member is replaced in memory alone": "the members of group",
    "a replaced static member may commit": "had taken its place",
    "a static member that is away owns nothing": "in the log, and to",
    "a member need not give up what it loses": "still consumes it",
    "a member may keep for ever what it loses": "has not given up",
    "members without heartbeats stay": "and nobody is there",
    "commits of earlier epochs are accepted": "too late: it was in epoch",
    "heartbeats are accepted in any epoch": "was accepted of",
    "members that have left are loaded": "the members of consumer group",
    "resolved expressions are not loaded": "the expressions of consumer group",
    "targets are kept in memory alone": "the targets in consumer group",
    "an assignor forgets a partition": "gives nobody",
    "groups do not see that topics change": "nobody in",
    "a group begins anew when it becomes classic": "was told epoch",
    "recovery does not note producers": "producers, ",
    "recovery does not index batches": "that lacks entries",
    "leader epochs are not truncated": "a leader epoch beyond its end",
    "indexes are not truncated": "with a batch to",
    "snapshots of what was truncated stay": ", beyond its end",
    "a roll does not index the largest time": "that ends with",
    "a snapshot lacks producers with an open transaction": "which has a batch to",
    "compaction removes markers before their records": "but the records at",
    "compaction removes markers before their horizon": "which was to stay until",
    "compaction goes beyond the last stable offset": "a change of the batch at",
    "compaction counts aborted records": "which was the last one of",
    "retention by size deletes one segment more": "neither too old nor too much",
    "a follower does not take over the log's start": "on its leader",
    "a deletion is confirmed by the leader alone": "confirmed too early",
    "a sync that has failed is tried again": "knows that a sync has failed|which has no batch",
    "a failed disk takes all replicas offline": "whose log directory is sound",
    "rules that were missed in a lost session are not read": "has the rule|has lost the rule",
    "an addition replaces the rules that are there": "nobody has asked that",
    "the last rule of a pattern stays in the store": "and the store does not have it",
    "decisions are remembered when rules change": "was denied what all rules permit",
    "an allowance comes before a denial": "was permitted what all rules deny",
    "what is denied is written all the same": "was denied, and is in the log",
    "a deleted password stays": "was admitted with",
    "passwords count long after they are confirmed": "was refused with the right password",
    "passwords that other brokers change are not applied": "has the password",
}
"""What the checker says of each bug that concerns one part of the brokers; `|`: or."""
OF_ONE_PART = {
    *NEWER_TRANSACTION_BUGS,
    *CONSUMER_GROUP_BUGS,
    *ACCESS_BUGS,
    *CONTROLLER_BUGS,
    *REPLICA_BUGS,
    *LOGIN_BUGS,
    *TRANSACTION_BUGS,
    *GROUP_BUGS,
    *LOG_BUGS,
}
BY_ONE_KIND = {
    "an unknown partition is treated as deleted": ("return alone, with", 3),
    "markers of an earlier coordinator are accepted": ("hold markers, with", 3),
    "a restarted broker is trusted in the same epoch": ("restart the controller", 20),
    "a sync that has failed is tried again": ("lose pages of", 20),
    "a broker that is dead joins the ISR": ("lose who is proposed by", 8),
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
    """By its own invariant: in other seeds another one may break first."""
    first, outputs = FOUND_FROM[name], []
    for seed in range(first, first + FURTHER_SEEDS + 1):
        ended = run("--bug", name, "--seeds", f"{seed}-{seed}", *faults_for(name))
        assert ended.returncode in (0, 1), ended.stderr[-2000:]
        assert "raised at" not in ended.stdout, "the invariants should find it, not a crash"
        if re.search(f"^    [a-z ]+: .*({FOUND_BY.get(name, '')})", ended.stdout, re.MULTILINE):
            return
        outputs.append(ended.stdout[:500] if ended.returncode else "passes")
    pytest.fail("\n".join(outputs))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("hardship", "bug"), SHOWN_IN.items())
def test_a_hardship_alone_breaks_nothing(hardship: str, bug: str) -> None:
    ended = run("--bug", hardship, "--seeds", str(FOUND_FROM[bug]), *faults_for(bug))
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]


def test_no_two_bugs_of_one_part_are_found_by_the_same_line() -> None:
    sources = [path for path in ROOT.glob("tests/simulation/**/*.py") if not path.name.startswith(("test_", "planted"))]
    lines = [(path, *line) for path in sources for line in enumerate(path.read_text().splitlines())]
    assert FOUND_BY.keys() == OF_ONE_PART
    finders: dict[tuple[Path, int], str] = {}
    for bug, texts in FOUND_BY.items():
        found = [(path, number) for path, number, line in lines if any(text in line for text in texts.split("|"))]
        assert found, f"nothing says: {texts}"
        for place in found:
            assert finders.setdefault(place, bug) == bug, place


def test_every_bug_has_a_recorded_seed() -> None:
    assert FOUND_FROM.keys() == BUGS.keys()
    assert SHOWN_IN.keys() == HARDSHIPS.keys()
