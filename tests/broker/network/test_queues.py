"""Who shares a bound of unfinished requests with whom."""

from __future__ import annotations

from odradek.broker.network.connection import Connection
from odradek.broker.network.connection_limits import ConnectionLimits
from odradek.broker.network.queued_bytes import QueuedBytes, Queues
from odradek.broker.requests.endpoint import Endpoint
from odradek.broker.requests.request_context import ConnectionInfo
from odradek.broker.security.authentication_counts import AuthenticationCounts
from odradek.broker.security.sasl.authentication import Authentication, Login, SaslListener
from tests.table_settings import of_table

ENDPOINT = Endpoint("OUTSIDE", "SASL_SSL", "127.0.0.1", 9093, "localhost", 9093)
LISTENER = SaslListener({}, 0, 1000, AuthenticationCounts())
ALICE = "User:alice"


def queue_of(
    queues: Queues[Connection], *, login: Authentication | None = None, principal: str = "", shakes: bool = False
) -> QueuedBytes[Connection]:
    info = ConnectionInfo(ENDPOINT)
    info.authentication = login
    info.principal = principal or info.principal
    info.shakes_hands = shakes
    return queues.of(info)


def test_strangers_and_users_and_clients_that_need_not_log_in_have_bounds_of_their_own() -> None:
    limits = of_table(ConnectionLimits, max_queued_bytes=1000, max_queued_bytes_before_login=10)
    queues: Queues[Connection] = Queues(lambda: limits, lambda connection, size: None)
    renewal = Authentication(LISTENER, Login(ALICE, "PLAIN", 1000))
    assert queue_of(queues, shakes=True) is queues.before_login
    assert queue_of(queues, login=Authentication(LISTENER)) is queues.before_login
    assert queue_of(queues, login=Authentication(LISTENER), principal=ALICE) is queues.before_login
    assert queue_of(queues, login=renewal, principal=ALICE) is queues.logged_in
    assert queue_of(queues, principal=ALICE) is queues.logged_in
    assert queue_of(queues) is queues.anonymous
