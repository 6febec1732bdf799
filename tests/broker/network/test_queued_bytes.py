"""Which connections are read, paused and closed when their unfinished requests together are too large."""

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


def test_held_bytes_are_counted_once_per_connection() -> None:
    held, a, b = queued(), Client(), Client()
    assert held.hold(a, 30)
    assert held.hold(a, 40)
    assert held.hold(b, 60)
    assert (held.total, held.is_too_much) == (100, False)
    held.release(a)
    held.release(a)
    assert held.total == 60


def test_above_the_limit_only_the_connection_that_began_first_is_read() -> None:
    held, first, second, third = queued(), Client(), Client(), Client()
    assert held.hold(first, 50)
    assert held.hold(second, 50)
    assert not held.hold(third, 1)
    assert not held.hold(second, 60)
    assert held.hold(first, 80)


def test_reading_resumes_when_memory_is_free_and_earlier_for_the_next_connection() -> None:
    held, first, second, third = queued(), Client(), Client(), Client()
    for client in (first, second, third):
        held.hold(client, 80)
    held.release(first)
    assert (second.read_on_calls, third.read_on_calls) == (1, 0)
    held.release(second)
    assert (second.read_on_calls, third.read_on_calls) == (1, 1)


def test_a_connection_closed_while_it_waits_is_forgotten() -> None:
    held, first, second = queued(), Client(), Client()
    held.hold(first, 80)
    held.hold(second, 80)
    held.release(second)
    held.release(first)
    assert (held.total, second.read_on_calls) == (0, 0)


def test_a_check_closes_stalled_connections_until_memory_is_free() -> None:
    held, silent, other, waiting = queued(), Client(), Client(), Client(is_awaited=False)
    for client in (silent, other, waiting):
        held.hold(client, 60)
    assert ended(held) == [], "they have just sent something"
    assert waiting.read_on_calls == 1
    assert ended(held) == [silent], "the others could not send before now"
    assert ended(held) == [other]
    assert held.total == 60


def test_a_check_closes_no_connection_while_memory_is_free() -> None:
    held, silent = queued(), Client()
    held.hold(silent, LIMIT)
    assert ended(held) == ended(held) == []


def test_sending_connections_stay_up_to_twice_the_limit_then_the_first_one_is_closed() -> None:
    held, first, second = queued(), Client(), Client()
    for _ in range(2):
        held.hold(first, LIMIT + 10)
        held.hold(second, LIMIT - 10)
        assert ended(held) == []
    held.hold(first, LIMIT + 11)
    held.hold(second, LIMIT - 10)
    assert ended(held) == [first]


def test_a_connection_that_waits_for_a_response_is_closed_only_above_twice_the_limit() -> None:
    held, parked = queued(), Client(is_awaited=False)
    held.hold(parked, 2 * LIMIT)
    assert ended(held) == ended(held) == []
    held.hold(parked, 2 * LIMIT + 1)
    assert ended(held) == [parked]
