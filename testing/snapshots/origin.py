"""What a broker of a test starts from, and what a reset brings back: nothing, or a snapshot.

(A) A broker that starts from a snapshot needs empty log directories. It has the snapshot's broker id unless it is given
    another one.
(B) A broker that has found data of its own in its log directories is not reset: nobody could bring them back.
(C) A reset keeps the addresses, the broker id and the cluster id. It removes everything else, also from memory: topics,
    groups, offsets, transactions, users, ACLs, dynamic settings, metrics. Clients are disconnected. If they go on, they
    find a cluster as at the start.
(D) What a reset removes is renamed into the folder ASIDE, and removed after the broker has started again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from odradek.broker.background.stepwise import Pace, Steps, in_steps
from odradek.broker.server import Broker, BrokerState
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.start_error import StartError
from odradek.storage.directories.log_directory import LOCK
from odradek.storage.directories.meta_properties import NAME as META_PROPERTIES
from odradek.storage.files import Files
from odradek.storage.removal import Removal
from odradek.testing.snapshots.snapshot import Snapshot, as_snapshot

ASIDE = ".reset"
NO_LOGS = (LOCK, "lost+found", ASIDE)
NO_DATA = (*NO_LOGS, META_PROPERTIES)
IDS = ("broker.id", "node.id")
ITEMS_OF_A_RENAME = 3
METRICS_PORT = BrokerConfig.odradek_metrics_port.name

NewConfig = Callable[[Mapping[str, str]], BrokerConfig]
"""Makes the config of a start, with these settings instead of those given."""


class ResetError(Exception):
    """A broker cannot be reset. The message says why, and what to do."""


class Origin:
    """Of one broker."""

    def __init__(self, texts: Mapping[str, str], snapshot: Snapshot | str | Path | None, new_config: NewConfig) -> None:
        """`texts`: the settings given, by name. Raises SnapshotError."""
        self._snapshot = None if snapshot is None else as_snapshot(snapshot, of_cluster=False)
        self._new_config = new_config
        self._overrides: dict[str, str] = {}
        if self._snapshot is not None and not any(name in texts for name in IDS):
            self._overrides["broker.id"] = str(self._snapshot.broker_id)
        self._own_data: list[str] = []

    @property
    def is_snapshot(self) -> bool:
        """Whether it has data."""
        return self._snapshot is not None

    def config(self, broker: Broker | None = None) -> BrokerConfig:
        """Returns the config of a start; of a `broker` that starts over, with the port of its metrics."""
        server = None if broker is None else broker.metrics_server
        if server is not None:
            self._overrides[METRICS_PORT] = str(server.port)
        return self._new_config(self._overrides)

    async def prepare(self, directories: list[str], files: Files) -> None:
        """Puts the snapshot into the log directories before the first start. Raises StartError, SnapshotError."""
        self._own_data = [path for path in directories if has_data(files, path)]
        if self._snapshot is not None:
            if self._own_data:
                raise StartError(
                    f"{', '.join(self._own_data)} has data: a broker starts from a snapshot in an empty directory"
                )
            await in_steps(self._snapshot.put_into(directories[0], files))

    async def reset(self, broker: Broker) -> None:
        """Brings the broker back to what it was at its start (C). Raises ResetError; StartError, SnapshotError if it
        cannot start again."""
        if broker.state != BrokerState.RUNNING:
            raise ResetError(f"the broker is not running ({broker.state.name}): only a running one is reset")
        if broker.metadata_store.is_shared:
            raise ResetError("a broker of a cluster is not reset: the others would go on with what they know")
        if self._own_data:
            raise ResetError(
                f"{', '.join(self._own_data)} had data before the start, which a reset could not bring back: take a "
                "snapshot of that broker, and start from the snapshot"
            )

        directories, files = broker.config.log_dirs, broker.files

        async def empty() -> None:
            await in_steps(self._set_aside(directories, files))
            if self._snapshot is not None:
                await in_steps(self._snapshot.put_into(directories[0], files))

        await broker.start_over(self.config(broker), empty)
        removal = Removal(files, [f"{directory}/{ASIDE}" for directory in directories])
        broker.background.spawn(_in_thread(broker, removal), "removal of what was reset")

    def _set_aside(self, directories: list[str], files: Files) -> Steps[None]:
        """(D)."""
        kept = NO_DATA if self._snapshot is None else NO_LOGS
        pace = Pace()
        for directory in directories:
            aside = f"{directory}/{ASIDE}"
            if files.exists(aside):  # of the last reset, which was not finished
                files.remove_tree(aside)
            files.make_directories(aside)
            for name in files.list_directory(directory):
                if name not in kept:
                    files.rename(f"{directory}/{name}", f"{aside}/{name}")
                if pace.step_ends(ITEMS_OF_A_RENAME):
                    yield


async def _in_thread(broker: Broker, removal: Removal) -> None:
    await broker.background.run_in_thread(removal.run)


def has_data(files: Files, directory: str) -> bool:
    """Whether a log directory has more than a broker makes at its start."""
    return files.is_directory(directory) and any(name not in NO_DATA for name in files.list_directory(directory))
