"""DescribeClientQuotas gets the answers that Apache Kafka 3.9.1 gives in ZooKeeper mode.

tests/vectors/client_quotas.json has the entries that Kafka has stored, and its answers. A test with Kafka itself checks
that they are still the same, and that a broker of ours on its ZooKeeper gives them; with ODRADEK_RECORD=1 it writes
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.beside_kafka.recordings import VECTORS, as_json, is_still, recorded
from tests.broker.handlers.quota_scenarios import (
    IMPOSSIBLE,
    answers_of,
    create_entries,
    store_quotas,
    stored_entries,
)
from tests.cluster.mixed_cluster import APACHE, MixedCluster, mixed_cluster
from tests.wire.api import api_of_a_broker
from tests.wire.records import connect
from tests.zookeeper.stores import new_chroot, store_at

QUOTAS = VECTORS / "client_quotas.json"
OTHERWISE = {f"only {name}" for name in IMPOSSIBLE}
"""Kafka fails on names that ZooKeeper does not take."""
NOTHING = {"ThrottleTimeMs": 0, "ErrorCode": 0, "ErrorMessage": "", "Entries": []}


def differences(ours: dict[str, Any], kafkas: dict[str, Any]) -> dict[str, Any]:
    assert ours.keys() == kafkas.keys()
    return {name: (answer, kafkas[name]) for name, answer in ours.items() if not is_as(answer, kafkas[name], name)}


def is_as(answer: Any, kafkas: Any, name: str) -> bool:
    """Also with a text where Kafka has none for an error."""
    if name in OTHERWISE:
        assert kafkas["ErrorCode"] == -1
        return bool(answer == NOTHING)
    if kafkas["ErrorCode"] and kafkas["ErrorMessage"] is None:
        return bool(answer["ErrorMessage"]) and {**answer, "ErrorMessage": None} == kafkas
    return bool(answer == kafkas)


async def test_every_request_gets_kafkas_answer() -> None:
    kafkas = recorded(QUOTAS)
    async with api_of_a_broker() as api:
        store = api.broker.metadata_store
        await create_entries(store, kafkas["entries"])
        assert differences(as_json(await answers_of(api.client, store)), kafkas["answers"]) == {}


# Apache Kafka itself


@pytest.fixture
def cluster(zookeeper: str, kafka_control: list[str], tmp_path: Path) -> Iterator[MixedCluster]:
    with mixed_cluster(kafka_control, zookeeper + new_chroot(), tmp_path, brokers=2) as cluster:
        yield cluster


@pytest.mark.timeout(300)
async def test_kafka_gives_the_recorded_answers_and_a_broker_beside_it_the_same(cluster: MixedCluster) -> None:
    store = store_at(cluster.zookeeper)
    (ours,) = cluster.ours
    async with (
        AsyncExitStack() as closed,
        await connect(cluster.nodes[APACHE].address) as apache,
        await connect(cluster.nodes[ours].address) as beside,
    ):
        closed.push_async_callback(store.close)
        await store.open()
        await store_quotas(apache)
        entries = await stored_entries(store)
        answers = as_json(await answers_of(apache, store))
        same = as_json(await answers_of(beside, store))
    is_still(QUOTAS, {"entries": entries, "answers": answers}, sort_keys=True)
    assert differences(same, answers) == {}
