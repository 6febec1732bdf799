"""When clients may ask and push, and when the broker forgets them, on the timing wheel."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from odradek.broker.background.stepwise import finished
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import ConnectionInfo, RequestContext
from odradek.broker.telemetry import client_instances
from odradek.broker.telemetry.client_instances import ClientInstance, ClientInstances
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.timer import ManualClock, SystemTimer
from tests.broker.telemetry.test_subscriptions import Stored

LISTENER = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092, None, 9092)
ONE, TWO = UUID(int=0x11 << 120), UUID(int=0x22 << 120)


class Room:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timer = SystemTimer(self.clock)
        self.stored = Stored(s={"metrics": "m", "interval.ms": "1000"})
        self.gone: list[UUID] = []
        self.instances = ClientInstances(
            self.stored.subscriptions, self.timer, Random(1), lambda each: self.gone.append(each.uuid)
        )
        self.connections = {number: ConnectionInfo(LISTENER, "127.0.0.1", 5000 + number, number) for number in range(4)}

    def heard(self, client_instance_id: UUID = ONE, connection: int = 1, client_id: str | None = "c") -> ClientInstance:
        context = RequestContext(
            self.connections[connection], ApiKey.PUSH_TELEMETRY, 0, 0, client_id, self.clock.now_ms()
        )
        return finished(self.instances.heard(client_instance_id, context))

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timer.advance_clock()

    def may_get(self) -> bool:
        return self.heard().may_get(self.clock.now_ms())

    def may_push(self) -> bool:
        return self.heard().may_push(self.clock.now_ms())


@pytest.fixture
def room() -> Room:
    return Room()


# --- when ---------------------------------------------------------------------------------------------------------


def test_a_client_asks_once_per_interval(room: Room) -> None:
    assert room.may_get()
    room.advance(999)
    assert not room.may_get()
    room.advance(1)
    assert room.may_get()


def test_the_first_push_after_asking_may_come_at_any_time(room: Room) -> None:
    assert room.may_get()
    room.advance(1)
    assert room.may_push()
    assert not room.may_push()
    room.advance(999)
    assert not room.may_push()
    room.advance(1)
    assert room.may_push()


def test_a_push_without_asking_is_allowed_and_puts_off_the_asking(room: Room) -> None:
    assert room.may_push()
    room.advance(500)
    assert not room.may_get()
    room.advance(500)
    assert room.may_get()


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE])
def test_after_some_errors_a_client_may_ask_at_once_and_its_next_push_waits(room: Room, error: ErrorCode) -> None:
    assert room.may_push()
    room.heard().last_error = error
    assert room.may_get()
    assert not room.may_push()


def test_after_other_errors_it_may_not(room: Room) -> None:
    assert room.may_push()
    room.heard().last_error = ErrorCode.INVALID_RECORD
    assert not room.may_get()


def test_a_changed_subscription_begins_anew(room: Room) -> None:
    before = room.heard()
    assert before.may_push(0)
    before.is_terminating = True
    before_id = before.subscription_id
    room.stored.put("s", {"metrics": "n", "interval.ms": "1000"})
    after = room.heard()
    assert after is before
    assert after.subscription_id != before_id
    assert not after.is_terminating
    assert after.may_get(0)


# --- how long ------------------------------------------------------------------------------------------------------


def test_a_silent_client_is_forgotten_after_a_minute_at_least(room: Room) -> None:
    room.heard()
    room.advance(59_999)
    assert room.gone == []
    room.heard()
    room.advance(59_999)
    assert room.gone == []
    room.advance(1)
    assert (room.gone, len(room.instances), room.timer.size) == ([ONE], 0, 0)


def test_a_client_may_be_silent_for_three_intervals(room: Room) -> None:
    room.stored.put("s", {"metrics": "m", "interval.ms": "100000"})
    room.heard()
    room.advance(299_999)
    assert room.gone == []
    room.advance(1)
    assert room.gone == [ONE]


def test_a_connection_takes_all_its_clients_along(room: Room) -> None:
    room.heard(ONE, 1)
    room.heard(TWO, 1)
    room.heard(UUID(int=3), 2)
    room.instances.disconnected(room.connections[3])
    room.instances.disconnected(room.connections[1])
    assert (room.gone, len(room.instances), room.timer.size) == ([ONE, TWO], 1, 1)
    room.instances.disconnected(room.connections[1])
    assert len(room.gone) == 2


def test_a_client_belongs_to_the_connection_on_which_it_was_evaluated(room: Room) -> None:
    room.heard(ONE, 1)
    room.heard(ONE, 2)
    room.instances.disconnected(room.connections[2])
    assert room.gone == []
    room.stored.put("s", {"metrics": "n"})
    room.heard(ONE, 3)
    room.instances.disconnected(room.connections[1])
    assert room.gone == []
    room.instances.disconnected(room.connections[3])
    assert room.gone == [ONE]


def test_a_forgotten_client_comes_back_with_the_same_subscription(room: Room) -> None:
    subscription_id = room.heard().subscription_id
    room.instances.disconnected(room.connections[1])
    assert room.heard(ONE, 2).subscription_id == subscription_id


def test_of_too_many_clients_the_one_silent_for_longest_goes(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_instances, "MOST_INSTANCES", 2)
    room.heard(ONE)
    room.heard(TWO)
    room.heard(ONE)
    room.heard(UUID(int=3))
    assert (room.gone, len(room.instances), room.timer.size) == ([TWO], 2, 2)


def test_the_default_bound_holds_and_leaves_nothing_behind(room: Room) -> None:
    for number in range(client_instances.MOST_INSTANCES + 100):
        room.heard(UUID(int=number + 2), number % 4)
    assert (len(room.instances), room.timer.size) == (client_instances.MOST_INSTANCES,) * 2
    for connection in room.connections.values():
        room.instances.disconnected(connection)
    assert (len(room.instances), room.timer.size) == (0, 0)


# --- who -----------------------------------------------------------------------------------------------------------


def test_patterns_see_who_the_client_is(room: Room) -> None:
    room.connections[1].client_software = ("soft", "1.2")
    assert room.heard().values == {
        "client_instance_id": "EQAAAAAAAAAAAAAAAAAAAA",
        "client_id": "c",
        "client_software_name": "soft",
        "client_software_version": "1.2",
        "client_source_address": "127.0.0.1",
        "client_source_port": "5001",
    }
    values = room.heard(TWO, 2, client_id=None).values
    assert (values["client_id"], values["client_software_name"]) == (None, "unknown")


def test_long_texts_of_clients_are_cut(room: Room) -> None:
    room.connections[1].client_software = ("s" * 30_000, "v" * 30_000)
    values = room.heard(client_id="c" * 30_000).values
    assert {len(values[name] or "") for name in ("client_id", "client_software_name", "client_software_version")} == {
        256
    }


def test_a_new_id_is_none_that_a_client_has(room: Room) -> None:
    same = ClientInstances(room.stored.subscriptions, room.timer, Random(1), lambda each: None)
    first = same.new_id()
    room.heard(first)
    assert room.instances.new_id() not in (first, UUID(int=0), UUID(int=1))
    assert first.version == 4


def test_an_instance_is_found_by_the_text_of_its_id(room: Room) -> None:
    instance = room.heard()
    assert room.instances.named("EQAAAAAAAAAAAAAAAAAAAA") is instance
    assert room.instances.named("EQAAAAAAAAAAAAAAAABAAA") is None
    assert room.instances.named("no id") is None
