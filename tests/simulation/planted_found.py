"""python -m tests.simulation.planted_found: looks in which seeds the planted bugs are found.

A seed shows a bug if the checker says what it says of this bug alone, and nothing is raised. When the sources have
changed, seeds show other things. It prints a line for each bug,

    ok          the recorded seed shows it
    moved       another seed does. With --write it becomes the recorded one (planted_seeds.py)
    not found   none of the seeds does: the checker has a hole, or the bug is none any more

and takes half an hour of two processors if few bugs have moved.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.simulation.planted import BUGS
from tests.simulation.planted_seeds import FOUND_FROM

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("planted_seeds.py")
MOST_SEEDS = 20
LONGEST_RUN_S = 300.0
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


def run(name: str, first: int, last: int) -> subprocess.CompletedProcess[str]:
    """Runs seeds with a bug, or a hardship alone, until one fails; in a process of its own, because a bug is planted in
    sources, not in compiled modules. Raises TimeoutExpired."""
    kind, number = BY_ONE_KIND.get(SHOWN_IN.get(name, name), (None, None))
    faults = [] if kind is None else ["--kind", kind, "--faults", str(number)]
    options = ["--brokers", "3", "--bug", name, "--seeds", f"{first}-{last}", *faults]
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation", *options],
        cwd=ROOT,
        env={**os.environ, "ODRADEK_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_RUN_S * (last - first + 1),
    )


def shows(name: str, output: str) -> bool:
    """Whether the first seed that has failed shows the bug."""
    says = re.search(f"^    [a-z ]+: .*({FOUND_BY.get(name, '')})", output, re.MULTILINE)
    return says is not None and "raised at" not in output


def is_shown_in(name: str, seed: int) -> bool:
    """Whether this seed shows the bug, and its hardship alone breaks nothing."""
    try:
        return shows(name, run(name, seed, seed).stdout) and all(
            run(hardship, seed, seed).returncode == 0 for hardship, bug in SHOWN_IN.items() if bug == name
        )
    except subprocess.TimeoutExpired:
        return False


def seed_of(name: str, recorded: int | None, is_shown: Callable[[str, int], bool] = is_shown_in) -> int | None:
    """The recorded seed if it shows the bug, else the first one that does; None: none of MOST_SEEDS."""
    seeds = [each for each in range(1, MOST_SEEDS + 1) if each != recorded]
    return next((each for each in (*([recorded] if recorded else []), *seeds) if is_shown(name, each)), None)


def with_seeds(table: str, seeds: Mapping[str, int]) -> str:
    """The text of planted_seeds.py with these seeds."""
    head, begin, _ = table.partition("FOUND_FROM = {\n")
    lines = [f'    "{name}": {seed},\n' for name, seed in seeds.items()]
    return "".join([head, begin, *lines, "}\n"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 1 if a recorded seed does not show its bug."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted_found", description=__doc__)
    parser.add_argument("--bug", choices=list(BUGS), action="append", metavar="NAME", help="look for this one alone")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at a time; as many as processors")
    parser.add_argument("--write", action="store_true", help=f"the seeds to {TABLE.name}")
    options = parser.parse_args(arguments)
    names = options.bug or list(BUGS)
    found = {name: seed for name, seed in FOUND_FROM.items() if name in BUGS}
    is_changed = False
    with ThreadPoolExecutor(options.processes) as pool:
        for name, seed in zip(names, pool.map(lambda name: seed_of(name, FOUND_FROM.get(name)), names), strict=True):
            state = "not found" if seed is None else "ok" if seed == FOUND_FROM.get(name) else "moved"
            print(f"{state:9} | {name} | {FOUND_FROM.get(name)} | {seed}", flush=True)
            is_changed |= state != "ok"
            found.update({} if seed is None else {name: seed})
    if options.write:
        TABLE.write_text(with_seeds(TABLE.read_text(), found))
    return 1 if is_changed else 0


if __name__ == "__main__":
    sys.exit(main())
