"""Which connections are read, paused and closed when their unfinished requests together are too large."""

from __future__ import annotations

from odradek.broker.network.queued_bytes import QueuedBytes

LIMIT = 100


class Client:
    def __init__(self, *, host: str = "10.0.0.1", is_awaited: bool = True) -> None:
        self.client_host = host
        self.is_awaited = is_awaited
        self.read_on_calls = 0

    def read_on(self) -> None:
        self.read_on_calls += 1


class Held(QueuedBytes[Client]):
    def __init__(self) -> None:
        self.ended: list[Client] = []
        super().__init__(lambda: LIMIT, lambda client, size: self.ended.append(client))

    def newly_ended(self) -> list[Client]:
        """Checks, and returns those that have ended since the last call."""
        self.check()
        ended, self.ended = self.ended, []
        return ended


def test_held_bytes_are_counted_once_per_connection() -> None:
    held, a, b = Held(), Client(), Client()
    assert held.hold(a, 30)
    assert held.hold(a, 40)
    assert held.hold(b, 60)
    assert (held.total, held.is_too_much) == (100, False)
    held.release(a)
    held.release(a)
    assert held.total == 60


def test_above_the_limit_only_the_connection_that_began_first_is_read() -> None:
    held, first, second, third = Held(), Client(), Client(), Client()
    assert held.hold(first, 50)
    assert held.hold(second, 50)
    assert not held.hold(third, 1)
    assert not held.hold(second, 60)
    assert held.hold(first, 80)


def test_reading_resumes_when_memory_is_free_and_earlier_for_the_next_connection() -> None:
    held, first, second, third = Held(), Client(), Client(), Client()
    for client in (first, second, third):
        held.hold(client, 60)
    held.release(first)
    assert (second.read_on_calls, third.read_on_calls) == (1, 0)
    held.release(second)
    assert (second.read_on_calls, third.read_on_calls) == (1, 1)


def test_a_connection_closed_while_it_waits_is_forgotten() -> None:
    held, first, second = Held(), Client(), Client()
    held.hold(first, 80)
    held.hold(second, 80)
    held.release(second)
    held.release(first)
    assert (held.total, second.read_on_calls) == (0, 0)


def test_above_the_limit_small_frames_are_read() -> None:
    held, large, small = Held(), Client(), Client()
    held.hold(large, LIMIT)
    assert held.hold(small, 20, is_small=True)
    assert not held.hold(small, 21)


def test_above_the_limit_an_address_is_read_that_holds_less_than_a_quarter_of_the_greediest() -> None:
    held = Held()
    greedy = [Client(host="10.0.0.1") for _ in range(5)]
    modest = [Client(host="10.0.0.2") for _ in range(2)]
    for client in greedy:
        held.hold(client, 20)
    assert held.hold(modest[0], 20)
    assert not held.hold(greedy[1], 21), "the same address"
    assert not held.hold(modest[1], 6), "26 is more than a quarter of 101"
    held.release(modest[0])
    assert held.hold(modest[1], 7)


def test_the_addresses_in_one_network_of_ipv6_count_as_one() -> None:
    held = Held()
    held.hold(Client(host="2001:db8::1"), LIMIT)
    assert not held.hold(Client(host="2001:db8::ffff:2"), 10)
    assert held.hold(Client(host="2001:db8:0:1::1"), 10)


def test_a_check_closes_stalled_connections_until_memory_is_free() -> None:
    held, silent, other, waiting = Held(), Client(), Client(), Client(is_awaited=False)
    for client in (silent, other, waiting):
        held.hold(client, 60)
    assert held.newly_ended() == [], "they have just sent something"
    assert waiting.read_on_calls == 1
    assert held.newly_ended() == [silent], "the others could not send before now"
    assert held.newly_ended() == [other]
    assert held.total == 60


def test_a_check_closes_the_oldest_frame_of_the_greediest_address_first() -> None:
    held = Held()
    oldest, modest = Client(host="10.0.0.2"), Client(host="10.0.0.2")
    greedy = [Client(host="10.0.0.1") for _ in range(3)]
    for client, size in ((oldest, 20), (greedy[0], 30), (greedy[1], 30), (modest, 20), (greedy[2], 30)):
        held.hold(client, size)
    assert held.newly_ended() == []
    assert held.newly_ended() == [greedy[0]]


def test_a_check_does_not_close_frames_of_an_address_that_holds_little() -> None:
    held = Held()
    modest, greedy = Client(host="10.0.0.2"), Client(host="10.0.0.1")
    held.hold(modest, 20)
    held.hold(greedy, 81)
    held.check()
    held.hold(greedy, 82)
    assert held.newly_ended() == [], "the greedy one has sent something"
    assert held.newly_ended() == [], "it could not send before now"
    assert held.newly_ended() == [greedy]


def test_a_connection_that_sends_and_completes_no_more_than_it_held_counts_as_stalled() -> None:
    held, drip, other = Held(), Client(), Client()
    held.hold(drip, 90)
    held.hold(other, 20, is_small=True)
    held.check()
    held.hold(drip, 90)
    assert held.newly_ended() == [drip]


def test_a_check_closes_no_connection_while_memory_is_free() -> None:
    held, silent = Held(), Client()
    held.hold(silent, LIMIT)
    assert held.newly_ended() == held.newly_ended() == []


def test_sending_connections_stay_up_to_twice_the_limit_then_the_oldest_of_the_greediest_address_ends_at_once() -> None:
    held = Held()
    other, first, second = Client(host="10.0.0.2"), Client(), Client()
    for more in range(2):
        held.hold(other, 20 + more)
        held.hold(first, 80 + more)
        held.hold(second, 90 + more)
        assert held.newly_ended() == []
    assert not held.hold(second, 2 * LIMIT - 80)
    assert held.ended == [first]
    assert held.total == 2 * LIMIT - 80 + 21


def test_a_connection_that_ends_by_what_it_sends_itself_does_not_wait() -> None:
    held, greedy = Held(), Client()
    assert not held.hold(greedy, 2 * LIMIT + 1)
    assert (held.ended, held.total, held.is_empty) == ([greedy], 0, True)


def test_a_connection_that_waits_for_a_response_is_closed_only_above_twice_the_limit_and_after_unfinished_frames() -> (
    None
):
    held, parked, unfinished = Held(), Client(is_awaited=False), Client()
    held.hold(parked, 2 * LIMIT - 1)
    assert held.newly_ended() == held.newly_ended() == []
    held.hold(unfinished, 2)
    assert held.ended == [unfinished]
    held.hold(parked, 2 * LIMIT + 1)
    assert held.ended == [unfinished, parked]
