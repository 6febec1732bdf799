"""Everybody's programs, whose broker is killed and restarted: they go on without a rebalance, and lose nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.members.crew import Programs
from tests.clients.members.everybody import GROUPS, PARTITIONS, TARGETS, TOPIC, everybody_at_work
from tests.clients.members.watch import until_coordinators
from tests.spawned_broker import SpawnedBroker

ENDS: tuple[Callable[[SpawnedBroker], object], ...] = (SpawnedBroker.kill, SpawnedBroker.terminate)


@pytest.mark.timeout(600)
def test_everybody_goes_on_where_they_were_when_their_broker_has_died(
    brokers: Callable[[], SpawnedBroker], everybodys_programs: Programs, tmp_path: Path
) -> None:
    broker = brokers()
    until_coordinators(broker.bootstrap)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (TOPIC, *TARGETS.values())]).values():
        made.result(30)
    groups = {name: f"group-of-{name}" for name in GROUPS}
    with everybody_at_work(broker.bootstrap, groups, everybodys_programs, tmp_path) as everybody:
        shared = everybody.look()
        for end in ENDS:
            end(broker)
            broker = brokers()
            everybody.until_all_work()
        assert everybody.look() == shared
