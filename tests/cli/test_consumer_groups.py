"""`odradek groups` with groups whose assignments the broker makes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition as Partition

from odradek.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from tests.cli.conftest import Odradek
from tests.patience import PATIENCE_S, block_until
from tests.spawned_broker import spawned_broker
from tests.wire.blocking_client import Client

JOINS: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"], "topic_partitions": []}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"offsets.topic.num.partitions": "1", "group.consumer.assignment.interval.ms": "0"}
    with spawned_broker(tmp_path_factory.mktemp("cli") / "data", settings) as broker:
        with Client(broker.bootstrap) as client:
            client.create("orders", 2)
        yield broker.bootstrap


@pytest.fixture
def odradek(bootstrap: str, run_odradek: Odradek) -> Odradek:
    return lambda *arguments: run_odradek("groups", *arguments, "--bootstrap-server", bootstrap)


@pytest.fixture
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap, "raw") as client:
        yield client


def beat(client: Client, group: str, member_id: str, epoch: int, **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch, **fields)
    response = client.ask(request, 1)
    assert response.error_code == 0
    return response


def coordinated(bootstrap: str, group: str) -> None:
    """Waits until the group has a coordinator."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    with closing(consumer):
        consumer.committed([Partition("orders", 0)], PATIENCE_S)


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()[1:]]


def test_a_member_that_must_give_up_partitions_is_shown_and_who_waits_for_them(
    bootstrap: str, client: Client, odradek: Odradek
) -> None:
    coordinated(bootstrap, "readers")
    beat(client, "readers", "a", 0, instance_id="one", **JOINS)
    beat(client, "readers", "b", 0, **JOINS)
    kept = beat(client, "readers", "a", 2, instance_id="one").assignment.topic_partitions[0].partitions[0]
    given = f"orders-{1 - kept}"
    status, out, err = odradek("describe", "readers", "--members")
    assert (status, err) == (0, "")
    first, second = (line.split(maxsplit=10) for line in out.splitlines()[1:])
    both = "orders-0,orders-1"
    assert [first[index] for index in (0, 1, 2, 4)] == ["readers", "a", "one", "raw"]
    assert first[5:] == ["2", both, "consumer", "2", given, "-"]
    assert second[5:] == ["0", "-", "consumer", "3", "-", f"{given} of a"]
    assert rows(odradek("describe", "readers", "--state")[1]) == [
        ["readers", "0", "uniform", "Reconciling", "2", "consumer", "3", "3"]
    ]
    (described,) = json.loads(odradek("describe", "readers", "--json")[1])
    assert (described["group_type"], described["group_epoch"], described["target_epoch"]) == ("consumer", 3, 3)
    of_a, of_b = described["members"]
    assert (of_a["gives_up"], of_a["waits_for"], of_a["target"]) == ([given], [], [f"orders-{kept}"])
    assert (of_b["gives_up"], of_b["waits_for"]) == ([], [{"partition": given, "owner": "a"}])
    assert (of_b["subscribed_topics"], of_b["subscribed_regex"], of_b["epoch"]) == (["orders"], None, 3)
    owners = {one["partition"]: one["consumer_id"] for one in described["partitions"]}
    assert owners == {0: "a", 1: "a"}, "what a member gives up is its own until it has"


def test_a_free_partition_is_waited_for_until_its_member_asks(bootstrap: str, client: Client, odradek: Odradek) -> None:
    coordinated(bootstrap, "free")
    beat(client, "free", "a", 0, **JOINS)
    beat(client, "free", "b", 0, **JOINS)
    told = beat(client, "free", "a", 2).assignment.topic_partitions
    beat(client, "free", "a", 2, topic_partitions=told)
    (described,) = json.loads(odradek("describe", "free", "--json")[1])
    (waits,) = described["members"][1]["waits_for"]
    assert waits["owner"] is None
    last = odradek("describe", "free", "--members")[1].splitlines()[2]
    assert last.split()[-1] == waits["partition"], "nobody is named"


def test_groups_are_listed_by_type(bootstrap: str, client: Client, odradek: Odradek) -> None:
    coordinated(bootstrap, "typed")
    beat(client, "typed", "a", 0, **JOINS)
    offsets = [Partition("orders", 0, 0)]
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "stored"})
    with closing(consumer):
        consumer.commit(offsets=offsets, asynchronous=False)
    everything = odradek("list")[1].splitlines()
    assert {"typed\tStable\tconsumer\tconsumer", "stored\tEmpty\t-\tclassic"} <= set(everything)
    consumers, classics = (odradek("list", "--type", name)[1].splitlines() for name in ("Consumer", "classic"))
    assert sorted([*consumers, *classics]) == everything
    assert {line.split("\t")[3] for line in consumers} == {"consumer"}
    listed = {group["group_id"]: group["group_type"] for group in json.loads(odradek("list", "--json")[1])}
    assert (listed["typed"], listed["stored"]) == ("consumer", "classic")


def test_members_of_both_protocols_and_a_regular_expression_are_shown(bootstrap: str, odradek: Odradek) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "mixed", "auto.offset.reset": "earliest"}
    modern = confluent_kafka.Consumer({**settings, "group.protocol": "consumer", "client.id": "modern"})
    classic = confluent_kafka.Consumer(
        {**settings, "partition.assignment.strategy": "cooperative-sticky", "client.id": "classic"}
    )
    with closing(modern), closing(classic):
        modern.subscribe(["^order.*"])
        classic.subscribe(["orders"])

        found: list[dict[str, Any]] = []

        def each_has_one() -> bool:
            modern.poll(0.1)
            classic.poll(0.1)
            status, out, _ = odradek("describe", "mixed", "--json")
            found[:] = json.loads(out)[0]["members"] if status == 0 else []
            return [len(member["partitions"]) for member in found] == [1, 1]

        block_until(each_has_one)
        types = {member["client_id"]: member["member_type"] for member in found}
        assert types == {"modern": "consumer", "classic": "classic"}
        regex = {member["client_id"]: member["subscribed_regex"] for member in found}
        assert regex == {"modern": "(^order.*)", "classic": None}
        status, out, err = odradek("reset-offsets", "mixed", "--topic", "orders", "--to-latest", "--execute")
        assert (status, out) == (1, "")
        assert err.startswith("odradek: the group 'mixed' has members; its state is ")
        assert odradek("delete", "mixed")[2] == "odradek: NON_EMPTY_GROUP: The group 'mixed' has members\n"


def test_offsets_of_an_empty_consumer_group_are_reset_and_it_is_deleted(
    bootstrap: str, client: Client, odradek: Odradek
) -> None:
    coordinated(bootstrap, "left")
    beat(client, "left", "a", 0, **JOINS)
    beat(client, "left", "a", -1)
    assert rows(odradek("describe", "left", "--state")[1])[0][3:6] == ["Empty", "0", "consumer"]
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", b"an order", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    assert odradek("reset-offsets", "left", "--topic", "orders:0", "--to-latest", "--execute")[0] == 0
    (described,) = json.loads(odradek("describe", "left", "--json")[1])
    assert [(one["partition"], one["current_offset"], one["lag"]) for one in described["partitions"]] == [(0, 1, 0)]
    assert odradek("delete", "left") == (0, "left deleted\n", "")
    assert odradek("describe", "left") == (1, "", "odradek: there is no group 'left'\n")


def test_a_broker_without_these_groups_still_shows_classic_ones(tmp_path: Path, run_odradek: Odradek) -> None:
    settings = {"odradek.as.version": "2.0", "offsets.topic.num.partitions": "1"}
    with spawned_broker(tmp_path / "data", settings) as broker:
        at = ("--bootstrap-server", broker.bootstrap)
        created = run_odradek("topics", "create", "orders", "--partitions", "1", "--replication-factor", "1", *at)
        assert created[0] == 0
        consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "stored"})
        with closing(consumer):
            consumer.commit(offsets=[Partition("orders", 0, 0)], asynchronous=False)
        assert run_odradek("groups", "list", *at)[1].split("\t")[::3] == ["stored", "-\n"]
        assert run_odradek("groups", "list", "--type", "classic", *at)[1].startswith("stored\t")
        assert run_odradek("groups", "list", "--type", "consumer", *at) == (0, "", "")
        assert run_odradek("groups", "describe", "stored", "--state", *at)[1].split("\n")[1].split()[-3:-1] == [
            "classic",
            "-",
        ]
