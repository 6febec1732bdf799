"""Requests that tools put into the metadata store while a controller is in office."""

from __future__ import annotations

import pytest

from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create, Delete
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.fleet import Fleet

KEY = TopicPartition("t", 0)
ELECTION = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"none","partition":3}]}'


def test_a_topic_that_is_marked_in_the_store_is_deleted() -> None:
    async def scene(fleet: Fleet) -> None:
        for name in ("t", "kept", "u"):
            await fleet.create(name, {0: [1, 2]})
        for name in ("t", "none", "u"):
            await fleet.observer.create(znodes.deletion_path(name))
            await fleet.quiet()
        assert await fleet.observer.children(znodes.TOPICS) == ["kept"]
        assert await fleet.observer.children(znodes.DELETE_TOPICS) == []
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_a_topic_stays_if_topics_cannot_be_deleted() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        await fleet.observer.create(znodes.deletion_path("t"))
        await fleet.quiet()
        assert await fleet.observer.children(znodes.DELETE_TOPICS) == []
        await fleet.check_agreement()

    Fleet([1, 2], settings={"delete.topic.enable": "false"}).run(scene)


def test_reassignments_that_are_requested_in_the_store_begin_at_once() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1]})
        for old, new in ((1, 2), (2, 1)):
            await fleet.observer.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({KEY: (new,)}))
            await fleet.quiet()
            assert (await fleet.state(KEY)).adding == (new,)
            await fleet.set_isr(KEY, [old, new])
            await fleet.quiet()
            assert (await fleet.state(KEY)).replicas == (new,)
            assert await fleet.observer.exists(znodes.REASSIGN_PARTITIONS) is None
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_a_reassignment_that_is_added_to_the_entry_does_not_disturb_the_others() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1], 1: [1]})
        other = TopicPartition("t", 1)
        await fleet.observer.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignments({KEY: (2,)}))
        await fleet.quiet()
        before = await fleet.state(KEY)
        both = znodes.encode_reassignments({KEY: (2,), other: (2,)})
        await fleet.observer.set(znodes.REASSIGN_PARTITIONS, both)
        await fleet.quiet()
        assert await fleet.state(KEY) == before
        assert (await fleet.state(other)).adding == (2,)

    Fleet([1, 2]).run(scene)


@pytest.mark.parametrize("takes_office", [False, True])
def test_preferred_leaders_that_are_requested_in_the_store_are_elected(takes_office: bool) -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [2, 1]})
        fleet.kill(2)
        await fleet.quiet()
        await fleet.start(2)
        await fleet.set_isr(KEY, [1, 2])
        assert (await fleet.state(KEY)).leader == 1
        if takes_office:
            await fleet.observer.multi([Create(znodes.PREFERRED_ELECTION, ELECTION), Delete(znodes.CONTROLLER)])
        else:
            await fleet.observer.create(znodes.PREFERRED_ELECTION, ELECTION)
        await fleet.quiet()
        assert (await fleet.state(KEY)).leader == 2
        assert await fleet.observer.exists(znodes.PREFERRED_ELECTION) is None
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_entries_that_cannot_be_read_disturb_nothing() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        await fleet.observer.create(znodes.PREFERRED_ELECTION, b"{")
        await fleet.observer.create(znodes.REASSIGN_PARTITIONS, b"{")
        await fleet.quiet()
        assert await fleet.observer.exists(znodes.PREFERRED_ELECTION) is None
        assert await fleet.observer.exists(znodes.REASSIGN_PARTITIONS) is not None
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)
