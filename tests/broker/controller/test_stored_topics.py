"""Topics and partitions that tools write straight into the metadata store, and entries that are damaged."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.metadata.new_topic import NewPartitions, NewTopic
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create, Delete, Operation
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.replica_control import LeaderAndIsrRequest
from odradek.protocol.topic_partition import TopicPartition
from tests.broker.controller.fleet import Fleet, codes

KEY = TopicPartition("t", 0)
REPLICAS = {"0": [1, 2], "1": [2, 1]}
ID_TEXT = "vzhfcaZqRA-I9DmWPy89Qg"


def entry(replicas: dict[str, list[int]], topic_id: str | None = None, version: int = 1) -> bytes:
    """As the tools of Kafka before 2.4 (version 1), before 2.8 (2), and later ones write it."""
    value: dict[str, Any] = {"version": version, "partitions": replicas}
    if version > 1:
        value |= {"adding_replicas": {}, "removing_replicas": {}}
    if topic_id is not None:
        value["topic_id"] = topic_id
    return json.dumps(value).encode()


async def write(fleet: Fleet, name: str, data: bytes, *others: Operation) -> None:
    """As a tool writes a topic."""
    settings = Create(znodes.topic_config_path(name), znodes.encode_config({}))
    await fleet.observer.multi([settings, Create(znodes.topic_path(name), data), *others])
    await fleet.quiet()


async def stored(fleet: Fleet, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await fleet.observer.get(znodes.topic_path(name))).data or b"")
    return found


async def topic_id(fleet: Fleet, name: str) -> UUID:
    found = znodes.parse_topic(name, (await fleet.observer.get(znodes.topic_path(name))).data).topic_id
    assert found is not None
    return found


def told_ids(fleet: Fleet, name: str) -> set[UUID]:
    """The ids with which brokers got their roles."""
    return {
        topic.topic_id
        for node in fleet.running()
        for request in node.broker.requests
        if isinstance(request, LeaderAndIsrRequest)
        for topic in request.topic_states
        if topic.topic_name == name
    }


@pytest.mark.parametrize("takes_office", [False, True])
@pytest.mark.parametrize("data", [entry(REPLICAS), entry(REPLICAS, None, 2), entry(REPLICAS, ID_TEXT, 3)])
def test_a_topic_that_a_tool_has_written_is_created(takes_office: bool, data: bytes) -> None:
    async def scene(fleet: Fleet) -> None:
        await write(fleet, "t", data, *([Delete(znodes.CONTROLLER)] if takes_office else []))
        after = await stored(fleet, "t")
        if ID_TEXT in data.decode():
            assert after == json.loads(data)
        else:
            assert list(after) == ["partitions", "topic_id", "adding_replicas", "removing_replicas", "version"]
            assert (after["partitions"], after["version"]) == (REPLICAS, 3)
        assert [(await fleet.state(TopicPartition("t", number))).leader for number in range(2)] == [1, 2]
        assert told_ids(fleet, "t") == {await topic_id(fleet, "t")}
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_many_topics_written_at_once_are_all_created() -> None:
    async def scene(fleet: Fleet) -> None:
        names = [f"t-{number}" for number in range(300)]
        await fleet.observer.multi(Create(znodes.topic_path(name), entry(REPLICAS)) for name in names)
        await fleet.quiet(5)
        assert all([(await fleet.state(TopicPartition(name, 1))).leader == 2 for name in names])
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_a_topic_whose_brokers_are_dead_is_led_when_one_starts() -> None:
    async def scene(fleet: Fleet) -> None:
        await write(fleet, "t", entry({"0": [3]}))
        assert await fleet.observer.exists(znodes.state_path("t", 0)) is None
        await fleet.start(3)
        await fleet.quiet()
        assert (await fleet.state(KEY)).leader == 3
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_partitions_that_a_tool_has_added_are_created() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        before = await topic_id(fleet, "t")
        for count in (2, 4):
            replicas = {str(number): [2, 1] if number else [1, 2] for number in range(count)}
            await fleet.observer.set(znodes.topic_path("t"), entry(replicas, None, 2))
            await fleet.quiet()
            assert (await fleet.state(TopicPartition("t", count - 1))).leader == 2
            assert await topic_id(fleet, "t") == before
        assert told_ids(fleet, "t") == {before}
        await fleet.check_agreement()
        added = await fleet.active().controller.topics.add_partitions([NewPartitions("t", 5)], timeout_ms=5000)
        assert codes(added) == [ErrorCode.NONE]
        await fleet.quiet()
        assert list((await stored(fleet, "t"))["partitions"]) == list("01234")
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_partitions_are_not_added_to_a_topic_that_is_being_deleted() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("t", {0: [1, 2]})
        fleet.nodes[2].broker.undeletable[KEY] = None
        await fleet.observer.create(znodes.deletion_path("t"))
        await fleet.quiet()
        await fleet.observer.set(znodes.topic_path("t"), entry(REPLICAS))
        await fleet.quiet()
        assert (await stored(fleet, "t"))["partitions"] == {"0": [1, 2]}
        assert await fleet.observer.exists(znodes.state_path("t", 1)) is None
        fleet.nodes[2].broker.undeletable.clear()
        fleet.kill(2)
        await fleet.quiet()
        await fleet.start(2)
        await fleet.quiet()
        assert await fleet.observer.children(znodes.TOPICS) == []
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_what_the_controller_writes_itself_is_carried_out_once() -> None:
    async def scene(fleet: Fleet) -> None:
        def roles() -> list[int]:
            return [node.broker.count(LeaderAndIsrRequest) for node in fleet.running()]

        await fleet.quiet()
        before = roles()
        await fleet.create("t", {0: [1, 2]})
        added = await fleet.active().controller.topics.add_partitions([NewPartitions("t", 3)], timeout_ms=5000)
        assert codes(added) == [ErrorCode.NONE]
        await fleet.quiet()
        assert roles() == [count + 2 for count in before]
        assert all([(await fleet.state(TopicPartition("t", number))).leader_epoch == 0 for number in range(3)])
        assert (await fleet.observer.get(znodes.topic_path("t"))).version == 1

    Fleet([1, 2]).run(scene)


def test_a_topic_whose_entry_vanishes_is_forgotten() -> None:
    async def scene(fleet: Fleet) -> None:
        for name in ("t", "other"):
            await fleet.create(name, {0: [1, 2]})
        paths = [znodes.state_path("t", 0), znodes.partition_path("t", 0), znodes.partitions_path("t")]
        await fleet.observer.multi(map(Delete, [*paths, znodes.topic_path("t"), znodes.topic_config_path("t")]))
        await fleet.quiet()
        assert fleet.active().controller.terms.numbers().topics == 1
        created = await fleet.active().controller.topics.create([NewTopic("t", assignments={0: [1]})], timeout_ms=5000)
        assert codes(created) == [ErrorCode.NONE]

    Fleet([1, 2]).run(scene)


@pytest.mark.parametrize("takes_office", [False, True])
@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b'{"version":1,"partitions":{}}',
        b'{"version":1,"partitions":{"0":[]}}',
        b'{"version":1,"partitions":{"0":[1e999]}}',
        b'{"version":1,"partitions":{"0":[4294967296]}}',
        b'{"version":1,"partitions":{"0":[-1]}}',
        b"[" * 100_000,
    ],
)
def test_a_topic_is_served_when_its_damaged_entry_is_repaired(takes_office: bool, data: bytes) -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.create("other", {0: [1, 2]})
        await write(fleet, "t", data, *([Delete(znodes.CONTROLLER)] if takes_office else []))
        assert (await fleet.observer.get(znodes.topic_path("t"))).data == data
        assert fleet.active().controller.terms.numbers().topics == 1
        await fleet.observer.set(znodes.topic_path("t"), entry(REPLICAS))
        await fleet.quiet()
        assert (await fleet.state(KEY)).leader == 1
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_a_damaged_topic_that_is_marked_for_deletion_is_deleted_when_it_is_repaired() -> None:
    async def scene(fleet: Fleet) -> None:
        await write(fleet, "t", b"{")
        await fleet.observer.create(znodes.deletion_path("t"))
        await fleet.quiet()
        assert await fleet.observer.children(znodes.DELETE_TOPICS) == ["t"]
        await fleet.observer.set(znodes.topic_path("t"), entry(REPLICAS))
        await fleet.quiet()
        assert await fleet.observer.children(znodes.TOPICS) == await fleet.observer.children(znodes.DELETE_TOPICS) == []
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_a_topic_with_a_name_that_no_topic_can_have_is_left_alone() -> None:
    async def scene(fleet: Fleet) -> None:
        for name in ("a topic", "x" * 250):
            await write(fleet, name, entry(REPLICAS))
        assert fleet.active().controller.terms.numbers().topics == 0
        assert all(not node.disk for node in fleet.running())

    Fleet([1, 2]).run(scene)


@pytest.mark.parametrize("takes_office", [False, True])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("controller_epoch", 1000),
        ("controller_epoch", 2**31),
        ("leader_epoch", 2**31 - 1),
        ("leader", 2**40),
        ("isr", [2**40]),
    ],
)
def test_a_damaged_state_disturbs_no_other_topic(takes_office: bool, field: str, value: object) -> None:
    async def scene(fleet: Fleet) -> None:
        for name in ("t", "other"):
            await fleet.create(name, {0: [1, 2]})
        path = znodes.state_path("t", 0)
        state = json.loads((await fleet.observer.get(path)).data or b"")
        await fleet.observer.set(path, json.dumps(state | {field: value}).encode())
        if takes_office:
            await fleet.observer.delete(znodes.CONTROLLER)
        await fleet.quiet()
        controller = fleet.active()
        epoch = controller.controller.terms.epoch
        fleet.kill(3 - controller.broker_id)
        await fleet.quiet(3)
        assert controller.controller.terms.epoch == epoch
        assert (await fleet.state(TopicPartition("other", 0))).isr == (controller.broker_id,)

    Fleet([1, 2]).run(scene)


@pytest.mark.parametrize("name", ["x", "-1", "007", "٣", "99999999999", "4"])
@pytest.mark.parametrize(
    "data",
    [
        None,
        b"{}",
        b'{"endpoints":["PLAINTEXT://h:99999999"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}',
        b'{"endpoints":["PLAINTEXT://h:9092"],"listener_security_protocol_map":{"PLAINTEXT":"OTHER"}}',
        b'{"endpoints":["PLAINTEXT://\\ud800:9092"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}',
        b'{"rack":7,"endpoints":["PLAINTEXT://h:9092"],"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"}}',
    ],
)
def test_a_damaged_registration_is_ignored(name: str, data: bytes | None) -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.observer.create(f"{znodes.BROKER_IDS}/{name}", data)
        await fleet.create("t", {0: [1, 2]})
        await fleet.quiet()
        assert fleet.active().controller.terms.epoch == 1
        await fleet.check_agreement()

    Fleet([1, 2]).run(scene)


def test_a_controller_whose_entry_is_overwritten_is_elected_again() -> None:
    async def scene(fleet: Fleet) -> None:
        for data in (b"{", znodes.encode_controller(9, 0)):
            await fleet.observer.set(znodes.CONTROLLER, data)
            await fleet.quiet()
            active = fleet.active().broker_id
            assert {node.active_controller for node in fleet.running()} == {active}
            assert znodes.parse_controller((await fleet.observer.get(znodes.CONTROLLER)).data) == active

    Fleet([1, 2]).run(scene)


KAFKAS_FEATURES = b'{"features":{},"version":1,"status":1}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, KAFKAS_FEATURES),
        (b'{"features":{},"version":2,"status":1}', KAFKAS_FEATURES),
        (b'{"features":{"f":{"min_version_level":1,"max_version_level":3}},"version":1,"status":0}', KAFKAS_FEATURES),
        (
            b'{"features":{"f":3},"version":2,"status":1}',
            b'{"features":{"f":{"min_version_level":1,"max_version_level":3}},"version":1,"status":1}',
        ),
        (b"{", b"{"),
        (b'{"features":{},"version":3,"status":1}', b'{"features":{},"version":3,"status":1}'),
    ],
)
def test_a_controller_enables_the_features_of_its_protocol_version(before: bytes | None, after: bytes) -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.observer.multi([Create(path) for path in znodes.PERSISTENT_PATHS])
        if before is not None:
            await fleet.observer.create(znodes.FEATURE, before)
        await fleet.start(1)
        assert (await fleet.observer.get(znodes.FEATURE)).data == after
        assert fleet.active().broker_id == 1

    Fleet([]).run(scene)
