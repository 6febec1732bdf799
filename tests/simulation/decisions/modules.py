"""The modules whose decisions are listed and counted, because they change replicated state: what is stored, appended,
truncated, acknowledged, elected, fenced, expired. What is left out of them, and why.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from tests.simulation.decisions.found import Decision, decisions_of

ROOT = Path(__file__).resolve().parents[3]

PARTS = {
    "The controller": ("broker/controller",),
    "The coordinators": ("broker/coordinator", "purgatory"),
    "Leaders and followers": ("broker/replica",),
    "Logs and recovery": ("storage/log", "storage/segment", "storage/producers", "storage/directories"),
    "Compaction": ("storage/cleaner", "broker/cleaning"),
    "A broker as a member": ("broker/cluster",),
}

LEFT_OUT = {
    "Numbers and texts to look at": (
        "broker/replica/follower/fetcher_stats.py",
        "broker/replica/partition/topic_stats.py",
        "broker/replica/log_dirs.py",
        "broker/coordinator/group/admin.py overviews",
        "broker/coordinator/transaction/coordinator.py TransactionCoordinator.describe",
        "broker/coordinator/transaction/coordinator.py TransactionCoordinator.listing",
        "broker/controller/controller_context.py ControllerContext.numbers",
        "broker/controller/controller_context.py ControllerContext._count",
        "broker/controller/partition_states.py is_led_by_preferred",
        "broker/controller/terms.py Terms.numbers",
        "broker/controller/terms.py Terms.epoch",
        "broker/replica/partition/partition.py Partition.is_under_replicated",
        "storage/cleaner/manager.py CleanerManager.uncleanable_bytes",
        "broker/coordinator/group/classic/member.py Member.waits_for",
        "broker/coordinator/runtime/runtime.py CoordinatorRuntime.loading",
        "broker/coordinator/transaction/marker_writing.py MarkerWriting._way_to",
        "storage/directories/future_replica.py LogMove.end_offset",
        "storage/producers/producer_state.py ProducerState.has_late_transaction",
        "*.__repr__",
    ),
    "How long a broker without work may sleep": (
        "broker/cluster/offline_replicas.py OfflineReplicas.idle_until_ms",
        "broker/replica/leader/isr_proposals.py AlterPartitions.has_followers",
    ),
    "They say whether an invariant holds, and are asked by the simulation alone": ("*.check",),
    "Delays of answers": ("broker/replica/quota/*", "broker/cluster/stored_quotas.py"),
    "Offsets that consumers ask for by time": (
        "broker/replica/partition/partition_offsets.py",
        "storage/log/search.py",
        "storage/segment/index.py TimeIndex.lookup",
    ),
    "Copies of a log for somebody who tests": (
        "storage/log/frozen.py",
        "storage/segment/index.py TimeIndex.packed_with",
        "storage/segment/transaction_index.py TransactionIndex.packed_below",
    ),
    "Offsets in ZooKeeper, of consumers before Kafka 0.9": ("broker/coordinator/group/offsets/zookeeper.py",),
    "Cleaners that are processes, which only large logs get": (
        "broker/cleaning/cleaner_process.py",
        "storage/cleaner/worker.py",
    ),
}
"""What of these modules changes no replicated state: files, or functions of a file."""


def files() -> dict[str, dict[str, Path]]:
    """Returns the files of each part by their names."""
    return {
        part: {
            name: path
            for folder in folders
            for path in sorted((ROOT / folder).rglob("*.py"))
            if path.name != "__init__.py" and not _is_left_out(name := name_of(path))
        }
        for part, folders in PARTS.items()
    }


def name_of(path: Path) -> str:
    """Returns a file's path in the tree."""
    return path.relative_to(ROOT).as_posix()


def traced_modules() -> dict[str, Path]:
    """Returns all files by the names of their modules."""
    return {
        f"odradek.{name.removesuffix('.py').replace('/', '.')}": path
        for part in files().values()
        for name, path in part.items()
    }


def _is_left_out(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for patterns in LEFT_OUT.values() for pattern in patterns)


@cache
def listed_decisions() -> dict[str, dict[str, list[Decision]]]:
    """Returns the decisions of each part and file, in the order of the text."""
    return {
        part: {
            name: [
                decision
                for decision in decisions_of(name, path.read_text())
                if not _is_left_out(f"{name} {decision.function}")
            ]
            for name, path in of_part.items()
        }
        for part, of_part in files().items()
    }
