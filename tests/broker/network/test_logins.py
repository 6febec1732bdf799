"""Connections whose clients have not logged in: until when they may, and which of them makes room for another."""

from __future__ import annotations

from odradek.broker.network.logins import Logins
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import ConnectionInfo

ENDPOINT = Endpoint("SSL", "SSL", "127.0.0.1", 9093, "localhost", 9093)


class Stranger:
    def __init__(self, host: str = "10.0.0.1") -> None:
        self.info = ConnectionInfo(ENDPOINT, host)
        self.info.shakes_hands = True

    def log_in(self) -> None:
        self.info.shakes_hands = False


def logins(timeout_ms: int = 100) -> Logins[Stranger]:
    return Logins(lambda: timeout_ms)


def test_a_login_is_overdue_after_the_timeout_and_a_complete_one_never_is() -> None:
    found, slow, quick, later = logins(), Stranger(), Stranger(), Stranger()
    found.begin(slow, 0)
    found.begin(quick, 0)
    found.begin(later, 50)
    quick.log_in()
    assert found.overdue(99) == []
    assert len(found) == 2, "one has logged in"
    assert found.overdue(100) == [slow]
    assert found.overdue(149) == []
    assert found.overdue(150) == [later]
    assert len(found) == 0


def test_a_client_that_need_not_log_in_is_no_stranger() -> None:
    found, client = logins(), Stranger()
    client.log_in()
    found.begin(client, 0)
    assert (len(found), found.give_way()) == (0, None)


def test_the_oldest_stranger_of_the_address_with_most_of_them_makes_room() -> None:
    found = logins()
    modest, *greedy = Stranger("10.0.0.2"), Stranger(), Stranger(), Stranger()
    for stranger in (modest, *greedy):
        found.begin(stranger, 0)
    greedy[0].log_in()
    assert found.give_way() is greedy[1], "the first one has logged in"
    found.end(greedy[2])
    assert found.give_way() is modest
    assert found.give_way() is None
