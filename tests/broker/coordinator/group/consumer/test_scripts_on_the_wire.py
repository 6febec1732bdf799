"""Scripts that a broker of Apache Kafka 4.4.0 answered, with a broker of ours: those of scripts_by_hand.py, and those
of recorder.py, which test_kafkas_scripts.py plays without a broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.testing import BrokerThread
from odradek.testing.virtual_time.members import groups_of
from tests.broker.coordinator.group.consumer.hand_recorder import BROKER_SETTINGS, SETTINGS_OF, HandPlayer
from tests.broker.coordinator.group.consumer.recorder import KINDS, SHORT_SESSION_MS, until_ready
from tests.broker.coordinator.group.consumer.scripts_by_hand import SCRIPTS
from tests.broker.coordinator.group.consumer.wire_group import WireGroup
from tests.patience import block_until
from tests.protocol.vector_files import lines_of
from tests.wire.blocking_client import Client

QUICK = 2
"""Scripts of each kind; the others are long."""
RECORDED = {line["script"]: line["steps"] for line in lines_of("consumer_groups/by_hand.jsonl")}


OF_TIMEOUTS = {"group.consumer.min.heartbeat.interval.ms": "500", "group.consumer.heartbeat.interval.ms": "500"}
AT_RANDOM = {kind: list(lines_of(f"consumer_groups/{kind}.jsonl")) for kind in KINDS if kind != "intervals"}
"""Intervals pass while no step takes time, and here each does."""
ROWS = [
    pytest.param(kind, number, marks=[pytest.mark.long] if number >= QUICK else [])
    for kind, scripts in AT_RANDOM.items()
    for number in range(len(scripts))
]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Mapping[str, BrokerThread]]:
    """Brokers by their migration policy. Time passes when a script says so."""
    started: dict[str, BrokerThread] = {}
    try:
        for policy, settings in SETTINGS_OF.items():
            started[policy] = BrokerThread({**BROKER_SETTINGS, **OF_TIMEOUTS, **settings}, time="virtual").__enter__()
            until_ready(started[policy].bootstrap)
        yield started
    finally:
        for thread in started.values():
            thread.__exit__(None, None, None)


def is_resolving(thread: BrokerThread, group_id: str) -> bool:
    groups = [each for each in groups_of(thread.broker) if each.group_id == group_id]
    return any(isinstance(each, ConsumerGroup) and each.is_resolving for each in groups)


@pytest.mark.parametrize("sentence", RECORDED)
def test_a_script(sentence: str, brokers: Mapping[str, BrokerThread]) -> None:
    script = SCRIPTS[sentence]
    broker = brokers[script.policy]
    with Client(broker.bootstrap) as client:
        group = WireGroup(client, f"{list(SCRIPTS).index(sentence)}-")
        player = player_of(broker, group)
        player.begin(script)
        for number, step in enumerate(RECORDED[sentence]):
            answers = step[2] if isinstance(step[-1], dict) and len(step) > 2 else {}
            found = player.play(step, {int(each) for each in answers})
            if step[0] == "described" and step[1].get("state") == "Assigning":
                assert_ahead(found[1], step[1])
            else:
                assert found == step, f"step {number}"
        player.end()


@pytest.mark.parametrize(("kind", "number"), ROWS)
def test_a_script_at_random(kind: str, number: int, brokers: Mapping[str, BrokerThread]) -> None:
    script, broker = AT_RANDOM[kind][number], brokers["bidirectional"]
    with Client(broker.bootstrap) as client:
        group = WireGroup(client, f"{kind}{number}-")
        player = player_of(broker, group)
        group.create_topics(script["topics"])
        if kind == "timeouts":
            group.configure({"consumer.session.timeout.ms": str(SHORT_SESSION_MS)})
        for step in script["steps"]:
            if step[0] == "beat":
                assert group.beat(step[1]) == step[2]
            elif step[0] != "described":
                player.play(step)
            elif step[1].get("state") == "Assigning":
                assert_ahead(group.describe(), step[1])
            else:
                assert group.describe() == step[1]


def player_of(broker: BrokerThread, group: WireGroup) -> HandPlayer:
    return HandPlayer(
        broker.bootstrap,
        group,
        lambda ms: broker.advance(ms / 1000),
        lambda: block_until(lambda: not is_resolving(broker, group.prefix)),
    )


def assert_ahead(found: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
    """Kafka assigns in the next heartbeat. We do that in a timer, so the target may be there already, also that of an
    epoch in between."""
    assert found["epoch"] == recorded["epoch"]
    assert recorded["target_epoch"] <= found["target_epoch"] <= recorded["epoch"]
    assert _without_targets(found["members"]) == _without_targets(recorded["members"])


def _without_targets(members: Mapping[str, Any]) -> dict[str, Any]:
    return {member_id: {**each, "target": None} for member_id, each in members.items()}


def test_all_scripts_are_recorded() -> None:
    assert RECORDED.keys() == SCRIPTS.keys()
    for sentence, steps in RECORDED.items():
        assert [step[:2] for step in SCRIPTS[sentence].steps if step[0] != "described"] == [
            step[:2] for step in steps if step[0] != "described"
        ]


def test_there_are_three_hundred_scripts() -> None:
    kinds = Counter(SCRIPTS[sentence].kind for sentence in RECORDED)
    assert min(kinds.values()) >= 2, kinds
    at_random = sum(len(list(lines_of(f"consumer_groups/{kind}.jsonl"))) for kind in (*KINDS, "migrations"))
    assert at_random + len(RECORDED) >= 300
