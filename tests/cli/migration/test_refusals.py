"""What a migration finds, and refuses: then nothing is written anywhere."""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable

import pytest

from odradek.broker.background.background import Background
from odradek.broker.metadata_store import acl_znodes, znodes
from odradek.broker.metadata_store.factory import metadata_store_of
from odradek.broker.metadata_store.interface import LONGEST_CHANGE, Create, MetadataStore, StoreDamaged, size_of
from odradek.broker.metadata_store.migration_note import NAME
from odradek.broker.metadata_store.start_up import make_persistent_entries, next_broker_id
from odradek.broker.settings.config import ConfigError
from odradek.broker.start_error import StartError
from odradek.cli.migration import entries
from odradek.cli.migration.entries import MigrationError
from odradek.storage.directories.log_directory import LogDirectory
from odradek.storage.directories.meta_properties import MetaPropertiesError
from tests.cli.migration.nodes import (
    BROKER_ID,
    CONTROLLER_EPOCH,
    DIRECTORY,
    IDS_GIVEN,
    Migrations,
    data_of,
    disk,
    is_copied,
    stopped_node,
    topic_entries,
)
from tests.memory_files import ForgetfulFiles
from tests.zookeeper.stores import store_at

ORDERS = znodes.topic_config_path("topic-1")


async def at_zookeeper(migrations: Migrations, work: Callable[[MetadataStore], Awaitable[object]]) -> None:
    """Does something as another client."""
    store = store_at(migrations.connect)
    await store.open()
    await work(store)
    await store.close()


async def refused(migrations: Migrations, files: ForgetfulFiles, message: str) -> None:
    """Nothing changes, neither there nor here."""
    before, contents = migrations.stored(), files.contents()
    with pytest.raises(MigrationError, match=message):
        await migrations.migrate(files)
    assert migrations.stored() == before
    assert files.contents() == contents


async def test_everything_but_ephemeral_entries_and_notices_is_copied(migrations: Migrations) -> None:
    files = disk()
    cluster_id = await stopped_node(files)
    await migrations.migrate(files)
    assert migrations.data() == await data_of(files, is_copied)
    assert len(migrations.data()) > 40
    assert not any(entry.ephemeral for entry in migrations.stored().values())
    assert migrations.data()[znodes.CONTROLLER_EPOCH] == b"%d" % CONTROLLER_EPOCH
    total = len(migrations.data())
    assert migrations.lines == [
        f"{DIRECTORY}: cluster {cluster_id}, broker {BROKER_ID}; 4 topics, 12 partitions, {total} entries",
        f"ZooKeeper at {migrations.connect}: empty",
        f"copied: {total} entries in 2 pieces",
        f"compared: all {total} entries are in ZooKeeper as they are in {DIRECTORY}",
        f"start broker {BROKER_ID} with zookeeper.connect={migrations.connect} now; it does not start without",
    ]


async def test_thousands_of_partitions_are_copied_in_pieces_that_zookeeper_takes(migrations: Migrations) -> None:
    """The model ends a connection whose frames are too long; all of it in one would be."""
    files = disk()
    many = topic_entries("long-name" * 27, 2_500)
    assert sum(map(size_of, many)) > 2 * LONGEST_CHANGE
    await stopped_node(files, *many)
    await migrations.migrate(files)
    assert migrations.data() == await data_of(files, is_copied)
    assert re.fullmatch(r"copied: \d+ entries in [6-9] pieces", migrations.lines[2]), migrations.lines


async def test_ids_of_brokers_go_on_where_the_node_was(migrations: Migrations) -> None:
    files = disk()
    await stopped_node(files)
    await migrations.migrate(files)
    found = []

    async def ask(store: MetadataStore) -> None:
        found.append(await next_broker_id(store, 1000))

    await at_zookeeper(migrations, ask)
    assert found == [1000 + IDS_GIVEN + 1]


async def test_notices_of_a_broker_on_zookeeper_find_no_old_one_in_their_way(migrations: Migrations) -> None:
    files = disk()
    await stopped_node(files)
    await migrations.migrate(files)

    async def change(store: MetadataStore) -> None:
        for _ in range(3):
            await store.create(znodes.CONFIG_CHANGE_PREFIX, b"{}", sequential=True)

    await at_zookeeper(migrations, change)


async def test_a_dry_run_says_what_is_there_and_writes_nothing(migrations: Migrations) -> None:
    files = disk()
    await stopped_node(files)
    contents = files.contents()
    await migrations.migrate(files, is_dry_run=True)
    assert migrations.lines[1:] == [f"ZooKeeper at {migrations.connect}: empty", "dry run: nothing was written"]
    assert files.contents() == contents
    assert migrations.model.tree.get(migrations.chroot) is None, "not even the chroot"


async def test_a_complete_migration_is_only_compared_again(migrations: Migrations) -> None:
    files = disk()
    await stopped_node(files)
    await migrations.migrate(files)
    before, contents = migrations.stored(), files.contents()
    await migrations.migrate(files)
    assert (migrations.stored(), files.contents()) == (before, contents)
    total = len(before)
    assert migrations.lines[1] == f"ZooKeeper at {migrations.connect}: {total} of {total} entries are there"


async def test_a_complete_migration_is_not_repeated(migrations: Migrations) -> None:
    """The node may have run there: what it had at the time of the migration is old, even if ZooKeeper has nothing."""
    files = disk()
    await stopped_node(files)
    await migrations.migrate(files)
    copied = f"the metadata in {DIRECTORY} were copied to ZooKeeper at {migrations.connect}"
    with pytest.raises(MigrationError, match=copied):
        await migrations.migrate(files, connect=migrations.connect + "-elsewhere")
    await at_zookeeper(migrations, lambda store: store.set(znodes.CONTROLLER_EPOCH, b"13"))
    await refused(migrations, files, copied)
    migrations.model.wipe()
    await refused(migrations, files, copied)


async def begun(store: MetadataStore, cluster_id: str) -> None:
    """A cluster of that id begins."""
    await make_persistent_entries(store)
    await store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))


async def test_another_cluster_is_refused_by_name(migrations: Migrations) -> None:
    files = disk()
    own = await stopped_node(files)
    await at_zookeeper(migrations, lambda store: begun(store, "of-others"))
    await refused(
        migrations, files, f"{migrations.connect} belongs to cluster of-others, and the node to cluster {own}"
    )


async def test_entries_without_a_cluster_id_are_refused(migrations: Migrations) -> None:
    files = disk()
    await stopped_node(files)
    await at_zookeeper(migrations, lambda store: store.create("/brokers"))
    await refused(migrations, files, "has /brokers but no /cluster/id")


async def test_other_programs_in_the_root_of_zookeeper_are_left_alone(migrations: Migrations) -> None:
    files = disk()
    await stopped_node(files)
    await at_zookeeper(migrations, lambda store: store.create("/hbase"))
    await migrations.migrate(files)
    assert migrations.data() == {"/hbase": None, **await data_of(files, is_copied)}


@pytest.mark.parametrize(
    ("path", "change"),
    [
        (ORDERS, lambda store: store.set(ORDERS, b"{}")),
        (znodes.CONTROLLER_EPOCH, lambda store: store.set(znodes.CONTROLLER_EPOCH, b"12")),
        (znodes.BROKER_SEQUENCE, lambda store: store.set(znodes.BROKER_SEQUENCE, b"")),
        (znodes.topic_path("new"), lambda store: store.create(znodes.topic_path("new"), b"{}")),
    ],
    ids=["data", "controller elected", "id given", "more"],
)
async def test_what_differs_is_named_and_refused(
    migrations: Migrations, path: str, change: Callable[[MetadataStore], Awaitable[object]]
) -> None:
    """The migration was not complete: its note says so."""
    files = disk()
    await stopped_node(files)
    await migrations.migrate(files)
    files.remove(f"{DIRECTORY}/{NAME}")
    await at_zookeeper(migrations, change)
    await refused(migrations, files, f"the node does not have like this: {path}. Nothing was written")


async def test_acls_are_copied_and_one_that_only_zookeeper_has_is_refused(migrations: Migrations) -> None:
    files = disk()
    own, other = "/kafka-acl-extended/prefixed/Topic/own", "/kafka-acl/Topic/other"
    await stopped_node(files, *map(Create, acl_znodes.PERSISTENT_PATHS), Create(own, b'{"version":1,"acls":[]}'))
    await migrations.migrate(files)
    assert migrations.data() == await data_of(files, is_copied)
    assert own in migrations.data()
    files.remove(f"{DIRECTORY}/{NAME}")
    await at_zookeeper(migrations, lambda store: store.create(other, b"{}"))
    await refused(migrations, files, f"the node does not have like this: {other}. Nothing was written")


async def test_a_broker_of_the_cluster_that_runs_is_refused_by_name(migrations: Migrations) -> None:
    files = disk()
    cluster_id = await stopped_node(files)

    async def migrate(store: MetadataStore) -> None:
        await begun(store, cluster_id)
        await store.create(znodes.broker_path(9), b"{}", ephemeral=True)
        await refused(migrations, files, f"broker 9 runs on ZooKeeper at {migrations.connect}")

    await at_zookeeper(migrations, migrate)


async def test_nothing_more_is_written_once_a_controller_was_elected_meanwhile(
    migrations: Migrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = disk()
    await stopped_node(files)
    apply = migrations.model.apply

    def apply_and_elect(transaction: object) -> None:
        monkeypatch.undo()
        apply(transaction)  # type: ignore[arg-type]
        path = f"{migrations.chroot}{znodes.CONTROLLER_EPOCH}"
        entry = migrations.model.tree.get(path)
        if entry is None:
            monkeypatch.setattr(migrations.model, "apply", apply_and_elect)
        else:
            elected = entry._replace(data=b"13", version=1)
            migrations.model.tree.apply(migrations.model.tree.number + 1, {path: elected})

    monkeypatch.setattr(migrations.model, "apply", apply_and_elect)
    with pytest.raises(MigrationError, match=r"a broker has started on ZooKeeper at .* meanwhile; 1 of 2 pieces"):
        await migrations.migrate(files)
    assert set(migrations.data()) == set(entries.HEAD)


async def test_a_node_that_runs_is_refused_by_name(migrations: Migrations) -> None:
    files = disk()
    await stopped_node(files)
    directory = LogDirectory(files, DIRECTORY)
    directory.open()
    await refused(migrations, files, f"{DIRECTORY} is in use by another broker .*: stop it first")
    directory.release()
    await migrations.migrate(files)
    directory.open()
    directory.release()


async def test_the_broker_keeps_its_id(migrations: Migrations) -> None:
    files = disk()
    await stopped_node(files)
    with pytest.raises(MetaPropertiesError, match=f"belongs to broker {BROKER_ID}, but this one is 1"):
        await migrations.migrate(files, broker_id=1)
    assert migrations.data() == {}
    await migrations.migrate(files, broker_id=BROKER_ID)


async def test_a_directory_without_a_single_node_is_refused(migrations: Migrations) -> None:
    files = disk()
    await refused(migrations, files, f"{DIRECTORY} has no metadata.journal")
    assert not files.exists(DIRECTORY)


async def test_an_entry_that_is_too_long_beside_the_check_of_the_controller_is_refused_by_name(
    migrations: Migrations,
) -> None:
    files = disk()
    path, size = znodes.topic_config_path("huge"), LONGEST_CHANGE - 200
    await stopped_node(files, Create(path, bytes(size)))
    await refused(migrations, files, f"{path} has {size} bytes, which is more than ZooKeeper takes at once")


async def test_a_setting_that_promises_protection_and_does_nothing_is_refused(migrations: Migrations) -> None:
    files = disk()
    await stopped_node(files)
    with pytest.raises(ConfigError, match=r"zookeeper\.set\.acl"):
        await migrations.migrate(files, zookeeper_set_acl="true")
    assert migrations.data() == {}


async def test_a_note_that_nobody_can_read_keeps_the_node_from_starting(migrations: Migrations) -> None:
    files = disk()
    await stopped_node(files)
    files.replace_file(f"{DIRECTORY}/{NAME}", b'{"format":"another"}')
    with pytest.raises(StoreDamaged, match=r"metadata.migration is not a note"):
        metadata_store_of(migrations.config(), files, Background(), random.Random(1))


async def test_a_node_that_was_not_migrated_does_not_start_with_zookeeper(migrations: Migrations) -> None:
    """It would serve none of its topics."""
    files = disk()
    await stopped_node(files)
    with pytest.raises(StartError, match=r"with zookeeper\.connect its topics would be missing"):
        metadata_store_of(migrations.config(), files, Background(), random.Random(1))
