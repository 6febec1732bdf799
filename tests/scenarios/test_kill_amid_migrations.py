"""kill -9 of a broker in a loop amid groups that change their protocol and transactions of version 2."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from tests.scenarios.newer_load import PARTITIONS, SETTINGS, TOPIC, newer_load
from tests.soak import rounds
from tests.spawned_broker import free_port, start_broker
from tests.wire.blocking_client import Client
from tests.wire.coordinators import find_coordinators

KILLS = rounds(3, in_soak=100)
FEW_PARTITIONS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}


@pytest.mark.long
@pytest.mark.soak("100 kills amid migrations and transactions of version 2", minutes=6)
@pytest.mark.timeout(1800)
def test_no_commit_is_lost_and_no_transaction_half_seen_after_kill_9(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance, port = Random(42), free_port()
    settings = {**SETTINGS, **FEW_PARTITIONS}
    broker = start_broker(tmp_path / "data", settings, port=port)
    try:
        with Client(broker.bootstrap) as client:
            find_coordinators(client)
            client.create(TOPIC, PARTITIONS)
        with newer_load(broker.bootstrap, chance) as load:
            for _ in range(KILLS):
                load.next_era()
                load.until_all_work()
                time.sleep(chance.random())
                load.note_the_kind_of_the_group()
                broker.kill()
                broker.close()
                broker = start_broker(tmp_path / "data", settings, port=port)
        with capsys.disabled():
            print(f"\n{KILLS} kills: {load.summary()}")
        assert broker.terminate() == 0
    finally:
        broker.kill()
        broker.close()
