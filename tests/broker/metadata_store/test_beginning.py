"""What new embedded stores begin with."""

from __future__ import annotations

import pytest

from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore, beginning
from odradek.broker.metadata_store.interface import Entry
from odradek.broker.metadata_store.start_up import make_entries
from odradek.broker.metadata_store.znodes import PERSISTENT_PATHS
from tests.memory_files import ForgetfulFiles

DIRECTORY = "/data"


def disk() -> ForgetfulFiles:
    files = ForgetfulFiles()
    files.make_directories(DIRECTORY)
    files.sync_directory("/")
    return files


async def entries_of(store: EmbeddedMetadataStore) -> list[Entry | None]:
    return await store.entries(["/", *PERSISTENT_PATHS])


async def test_a_new_store_has_its_first_entries_as_if_they_had_been_created() -> None:
    with_entries = EmbeddedMetadataStore(DIRECTORY, disk(), first_paths=PERSISTENT_PATHS)
    created = EmbeddedMetadataStore(DIRECTORY, disk())
    await with_entries.open()
    await created.open()
    await make_entries(created, PERSISTENT_PATHS)
    assert None not in await entries_of(with_entries)
    assert await entries_of(with_entries) == await entries_of(created)
    assert await with_entries.create("/next") == await created.create("/next")
    assert (await with_entries.get("/next")).created == (await created.get("/next")).created


async def test_they_are_on_the_disk() -> None:
    files = disk()
    store = EmbeddedMetadataStore(DIRECTORY, files, first_paths=PERSISTENT_PATHS)
    await store.open()
    before = await entries_of(store)
    again = EmbeddedMetadataStore(DIRECTORY, files.crash())
    await again.open()
    assert await entries_of(again) == before


async def test_a_store_with_data_gets_no_entries() -> None:
    files = disk()
    store = EmbeddedMetadataStore(DIRECTORY, files)
    await store.open()
    await store.close()
    again = EmbeddedMetadataStore(DIRECTORY, files, first_paths=PERSISTENT_PATHS)
    await again.open()
    assert (await entries_of(again))[1:] == [None] * len(PERSISTENT_PATHS)


async def test_stores_share_only_what_cannot_change() -> None:
    first, second = (EmbeddedMetadataStore(DIRECTORY, disk(), first_paths=PERSISTENT_PATHS) for _ in range(2))
    await first.open()
    await second.open()
    await first.set("/config", b"changed")
    await first.create("/config/more")
    await first.delete("/consumers")
    third = EmbeddedMetadataStore(DIRECTORY, disk(), first_paths=PERSISTENT_PATHS)
    await third.open()
    assert await entries_of(second) == await entries_of(third)
    assert await second.children("/config") == await third.children("/config")
    with pytest.raises(TypeError):
        beginning(PERSISTENT_PATHS).entries["/config"] = None  # type: ignore[index]
