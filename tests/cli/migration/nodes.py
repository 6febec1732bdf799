"""Single nodes that are stopped: only what the migration reads of them. Most are in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from odradek.broker.metadata.kafka_uuid import parse_uuid
from odradek.broker.metadata.metadata_cache import PartitionState
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore, read_files
from odradek.broker.metadata_store.interface import Create, Entry, MetadataStoreError, Operation
from odradek.broker.metadata_store.journal_disk import JournalDisk
from odradek.broker.metadata_store.start_up import next_broker_id, open_store
from odradek.broker.settings.config import BrokerConfig
from odradek.cli.migration.migrate import migrate
from odradek.storage.directories.log_directory import LOCK
from odradek.storage.directories.meta_properties import write_meta_properties
from odradek.storage.files import Files
from odradek.timer import ManualClock
from tests.memory_files import ForgetfulFiles
from tests.zookeeper.model import ZooKeeperModel

DIRECTORY = "/data"
BROKER_ID = 7
TOPICS, PARTITIONS = 4, 3
CONTROLLER_EPOCH = 12
IDS_GIVEN = 2
NO_SETTINGS: Mapping[str, str] = {}


async def stopped_node(files: Files, *more: Operation, directory: str = DIRECTORY) -> str:
    """Makes a node with topics, which has given ids to brokers; also an ephemeral entry and notices, as after kill -9.
    Returns the id of its cluster.
    """
    files.make_directories(directory)
    lock = files.lock(f"{directory}/{LOCK}")
    assert lock is not None
    store = EmbeddedMetadataStore(directory, files)
    cluster_id = await open_store(store, None, random.Random())
    for _ in range(IDS_GIVEN):
        await next_broker_id(store, 1000)
    await store.create(znodes.CONTROLLER_EPOCH, znodes.encode_number(CONTROLLER_EPOCH))
    await store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(BROKER_ID, 5000, 5999))
    for number in range(TOPICS):
        await store.multi(topic_entries(f"topic-{number}"))
    for path in (znodes.CONFIG_CHANGE_PREFIX, znodes.LOG_DIR_EVENT):
        await store.create(path, b"{}", sequential=True)
    assert not any(isinstance(each, MetadataStoreError) for each in await store.pipeline([[each] for each in more]))
    await store.create(znodes.broker_path(BROKER_ID), b"{}", ephemeral=True)
    write_meta_properties(files, directory, BROKER_ID, cluster_id)
    lock.release()
    return cluster_id


def topic_entries(name: str, partitions: int = PARTITIONS) -> list[Operation]:
    states = [PartitionState(number, BROKER_ID, 3, (BROKER_ID,), (BROKER_ID,), 1) for number in range(partitions)]
    operations: list[Operation] = [
        Create(znodes.topic_config_path(name), znodes.encode_config({"retention.ms": "1"})),
        Create(znodes.topic_path(name), znodes.encode_topic(parse_uuid("AAAAAAAAQACAAAAAAAAAAA"), states)),
        Create(znodes.partitions_path(name)),
    ]
    for state in states:
        operations.append(Create(znodes.partition_path(name, state.partition)))
        operations.append(Create(znodes.state_path(name, state.partition), znodes.encode_state(state)))
    return operations


class Migrations:
    """Migrates nodes to a path of the model, one after the other. `lines` is what was said last."""

    def __init__(self, model: ZooKeeperModel, address: str, chroot: str) -> None:
        self.model = model
        self.chroot = chroot
        self.connect = f"{address}{chroot}"
        self.lines: list[str] = []

    async def migrate(
        self,
        files: Files,
        *,
        connect: str | None = None,
        broker_id: int | None = None,
        is_dry_run: bool = False,
        **settings: str,
    ) -> None:
        self.lines = []
        await migrate(
            self.config(connect, settings),
            broker_id=broker_id,
            files=files,
            clock=ManualClock(),
            source=random.Random(1),
            say=self.lines.append,
            is_dry_run=is_dry_run,
        )

    def config(self, connect: str | None = None, more: Mapping[str, str] = NO_SETTINGS) -> BrokerConfig:
        settings = {name.replace("_", "."): text for name, text in more.items()}
        return BrokerConfig.single_node(
            {"log.dirs": DIRECTORY, "zookeeper.connect": connect or self.connect, **settings}
        )

    def stored(self) -> dict[str, Entry]:
        """The entries below the path, without it."""
        return {
            path.removeprefix(self.chroot): entry
            for path, entry in self.model.tree.items()
            if path.startswith(f"{self.chroot}/")
        }

    def data(self) -> dict[str, bytes | None]:
        """Their data."""
        return {path: entry.data for path, entry in self.stored().items()}


async def data_of(files: Files, keep: Callable[[str, Entry], bool]) -> dict[str, bytes | None]:
    """What the node's own files contain."""
    tree = read_files(JournalDisk(DIRECTORY, files)).tree
    return {path: entry.data for path, entry in tree.items() if path != "/" and keep(path, entry)}


def is_copied(path: str, entry: Entry) -> bool:
    """What a broker on ZooKeeper needs."""
    notices = ("/config/changes/", "/log_dir_event_notification/", "/isr_change_notification/")
    return not entry.ephemeral and not path.startswith(notices)


def disk() -> ForgetfulFiles:
    return ForgetfulFiles()
