"""What an embedded store has at one instant, as files."""

from __future__ import annotations

from odradek.broker.background.stepwise import finished
from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore
from odradek.broker.metadata_store.frozen_store import FrozenStore
from tests.memory_files import ForgetfulFiles


async def opened(files: ForgetfulFiles) -> EmbeddedMetadataStore:
    store = EmbeddedMetadataStore("/", files)
    await store.open()
    return store


def disk_with(frozen: FrozenStore) -> ForgetfulFiles:
    files = ForgetfulFiles()
    for name, content in finished(frozen.steps()).items():
        files.replace_file(f"/{name}", content)
    return files


async def test_the_files_have_the_entries_of_the_instant_but_not_the_sessions() -> None:
    store = await opened(ForgetfulFiles())
    await store.create("/topics", b"one")
    await store.create("/topics/orders", "ü".encode() + b"\xff")
    await store.create("/brokers")
    await store.create("/brokers/0", b"me", ephemeral=True)
    frozen = store.freeze()
    await store.set("/topics", b"two")
    await store.delete("/topics/orders")
    await store.create("/late")

    copy = await opened(disk_with(frozen))
    assert (await copy.get("/topics")).data == b"one"
    assert (await copy.get("/topics/orders")).data == "ü".encode() + b"\xff"
    assert await copy.children("/") == ["brokers", "topics"]
    assert await copy.children("/brokers") == []


async def test_opening_the_files_writes_nothing() -> None:
    store = await opened(ForgetfulFiles())
    await store.create("/brokers")
    await store.create("/brokers/0", b"me", ephemeral=True)
    disk = disk_with(store.freeze())
    before = disk.contents()
    await opened(disk)
    assert disk.contents() == before
