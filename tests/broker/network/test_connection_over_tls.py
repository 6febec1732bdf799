"""What holds for plain connections holds with TLS, too: the tests of test_connection.py."""

from collections.abc import AsyncIterator

import pytest

from odradek.broker.network.connection_limits import ConnectionLimits
from tests.broker.network import test_connection as plain
from tests.broker.network.echo_server import Bench, running
from tests.broker.network.tls_sides import both_sides

NOT_HERE = {
    "test_a_half_closed_connection_closes_after_its_parked_requests": "asyncio cannot half-close with TLS",
    "test_a_half_closed_connection_closes_although_reading_is_paused": "asyncio cannot half-close with TLS",
    "test_connections_do_not_use_the_reserved_descriptors": "a refused client has no connection in asyncio",
    "test_connections_above_the_limit_are_closed": "a refused client has no connection in asyncio",
    "test_connections_from_one_address_are_limited": "a refused client has no connection in asyncio",
    "test_a_thousand_idle_connections_are_kept_and_checked_at_once": "handshakes of one address are limited",
    "test_many_clients_that_do_not_read_are_closed_before_their_responses_fill_the_memory": "in test_tls_transport.py",
    "test_the_address_with_most_unread_bytes_is_the_first_whose_connections_are_closed": "TLS takes them in pieces",
    "test_an_occupied_port_is_named_in_the_error": "has no client",
    "test_a_listener_whose_protection_is_missing_is_not_bound": "has no client",
    "test_a_listener_on_every_interface_has_one_port_for_all_addresses": "has a server of its own",
}
TESTS = {name: test for name, test in vars(plain).items() if name.startswith("test_") and name not in NOT_HERE}
globals().update(TESTS)


@pytest.fixture
async def bench(limits: ConnectionLimits) -> AsyncIterator[Bench]:
    async with running(limits, both_sides()) as bench:
        yield bench


def test_what_is_left_out_exists() -> None:
    assert [name for name in NOT_HERE if not hasattr(plain, name)] == []
    assert len(TESTS) > 30
