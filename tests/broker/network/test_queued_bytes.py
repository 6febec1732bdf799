"""Who is read, who waits and who is ended when connections together have sent too much."""

from __future__ import annotations

from odradek.broker.network.queued_bytes import QueuedBytes

LIMIT = 100


class Client:
    def __init__(self, *, is_awaited: bool = True) -> None:
        self.is_awaited = is_awaited
        self.read_on_calls = 0

    def read_on(self) -> None:
        self.read_on_calls += 1


def queued() -> QueuedBytes[Client]:
    return QueuedBytes(lambda: LIMIT)


def ended(held: QueuedBytes[Client]) -> list[Client]:
    return [client for client, _ in held.overdue()]


def test_what_is_held_is_counted_once_for_each_connection() -> None:
    held, a, b = queued(), Client(), Client()
    assert held.hold(a, 30)
    assert held.hold(a, 40)
    assert held.hold(b, 60)
    assert (held.total, held.is_too_much) == (100, False)
    held.release(a)
    held.release(a)
    assert held.total == 60


def test_above_the_limit_only_the_one_that_began_first_is_read_on() -> None:
    held, first, second, third = queued(), Client(), Client(), Client()
    assert held.hold(first, 50)
    assert held.hold(second, 50)
    assert not held.hold(third, 1)
    assert not held.hold(second, 60)
    assert held.hold(first, 80)


def test_the_others_go_on_when_there_is_memory_and_the_next_one_before() -> None:
    held, first, second, third = queued(), Client(), Client(), Client()
    for client in (first, second, third):
        held.hold(client, 80)
    held.release(first)
    assert (second.read_on_calls, third.read_on_calls) == (1, 0)
    held.release(second)
    assert (second.read_on_calls, third.read_on_calls) == (1, 1)


def test_a_connection_that_goes_while_it_waits_is_forgotten() -> None:
    held, first, second = queued(), Client(), Client()
    held.hold(first, 80)
    held.hold(second, 80)
    held.release(second)
    held.release(first)
    assert (held.total, second.read_on_calls) == (0, 0)


def test_a_look_ends_those_that_stopped_in_the_middle_until_there_is_memory_again() -> None:
    held, silent, other, waiting = queued(), Client(), Client(), Client(is_awaited=False)
    for client in (silent, other, waiting):
        held.hold(client, 60)
    assert ended(held) == [], "they have just sent something"
    assert waiting.read_on_calls == 1
    assert ended(held) == [silent], "the others could send again only now"
    assert ended(held) == [other]
    assert held.total == 60


def test_a_look_ends_nobody_while_there_is_memory() -> None:
    held, silent = queued(), Client()
    held.hold(silent, LIMIT)
    assert ended(held) == ended(held) == []


def test_those_that_go_on_sending_stay_up_to_twice_the_limit_and_then_the_one_that_began_first_ends() -> None:
    held, first, second = queued(), Client(), Client()
    for _ in range(2):
        held.hold(first, LIMIT + 10)
        held.hold(second, LIMIT - 10)
        assert ended(held) == []
    held.hold(first, LIMIT + 11)
    held.hold(second, LIMIT - 10)
    assert ended(held) == [first]


def test_who_waits_for_an_answer_ends_only_above_twice_the_limit() -> None:
    held, parked = queued(), Client(is_awaited=False)
    held.hold(parked, 2 * LIMIT)
    assert ended(held) == ended(held) == []
    held.hold(parked, 2 * LIMIT + 1)
    assert ended(held) == [parked]
