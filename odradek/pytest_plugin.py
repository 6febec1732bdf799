"""A pytest plugin: the fixture `odradek_broker` is a running broker, `odradek_cluster` a cluster of three. Both are for
tests with blocking clients.

    def test_my_service(odradek_broker):
        producer = KafkaProducer(bootstrap_servers=odradek_broker.bootstrap)

    def test_my_service_survives_a_broker(odradek_cluster):
        producer = KafkaProducer(bootstrap_servers=odradek_cluster.bootstrap, acks="all")
        odradek_cluster.kill(1)

The brokers have free ports on 127.0.0.1, temporary data directories, and an event loop in a thread of its own. Each
test that uses one of these fixtures gets new brokers, which are removed afterwards. Asynchronous tests use
`odradek.testing` instead.

`odradek_session_broker` is one broker for all tests of a session, which is reset between the tests that use it. That is
faster, and its address stays the same. The fixture `odradek_session_broker_arguments` has its arguments.

Marks have the arguments of `odradek.testing.BrokerThread` and `ClusterThread`: settings, security, the number of
brokers. The mark of a test comes before that of its class or module.

    @pytest.mark.odradek_broker(security="SASL_SSL")
    def test_my_service_logs_in(odradek_broker):
        producer = KafkaProducer(**odradek_broker.client_settings("kafka-python"))
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from odradek.testing import BrokerThread, ClusterThread


MARKS = {
    "odradek_broker(settings=None, *, security, ...)": "how the fixture odradek_broker starts its broker",
    "odradek_cluster(brokers=3, settings=None, *, security, ...)": "how the fixture odradek_cluster starts its brokers",
}


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marks known."""
    for mark, what in MARKS.items():
        config.addinivalue_line("markers", f"{mark}: {what}; see odradek.testing")


@pytest.fixture
def odradek_broker(request: pytest.FixtureRequest) -> Iterator[BrokerThread]:
    """A broker in a thread of its own: `.bootstrap` is its HOST:PORT, `.data_dir` its directory."""
    from odradek.testing import BrokerThread

    positional, named = _mark(request, "odradek_broker")
    with BrokerThread(*positional, **named) as running, _no_faults_after_a_failure(request, running):
        yield running


@pytest.fixture(scope="session")
def odradek_session_broker_arguments() -> dict[str, Any]:
    """The keyword arguments of `odradek_session_broker`, as for BrokerThread. A conftest.py overrides it."""
    return {}


@pytest.fixture(scope="session")
def _odradek_broker_of_the_session(odradek_session_broker_arguments: dict[str, Any]) -> Iterator[_SessionBroker]:
    from odradek.testing import BrokerThread

    with BrokerThread(**odradek_session_broker_arguments) as running:
        yield _SessionBroker(running)


@pytest.fixture
def odradek_session_broker(
    request: pytest.FixtureRequest, _odradek_broker_of_the_session: _SessionBroker
) -> Iterator[BrokerThread]:
    """A broker that all tests of the session share. Each of them finds it as at its start, and without the faults of
    the others.
    """
    running = _odradek_broker_of_the_session.for_next_test()
    with _no_faults_after_a_failure(request, running):
        yield running
    try:
        running.call(running.faults.calls.check())
        running.faults.check()
    finally:
        running.faults.clear()


@pytest.fixture
def odradek_cluster(request: pytest.FixtureRequest) -> Iterator[ClusterThread]:
    """A cluster of three brokers, 1 to 3, in a thread of its own; see docs/cluster.md for what can be done to it."""
    from odradek.testing import ClusterThread

    positional, named = _mark(request, "odradek_cluster")
    with ClusterThread(*positional, **named) as running, _no_faults_after_a_failure(request, running):
        yield running


class _SessionBroker:
    """Resets the broker before the next test that uses it."""

    def __init__(self, running: BrokerThread) -> None:
        self._running = running
        self._was_used = False

    def for_next_test(self) -> BrokerThread:
        if self._was_used:
            self._running.reset()
            self._running.faults.journal.start_over()
        self._was_used = True
        return self._running


@contextlib.contextmanager
def _no_faults_after_a_failure(request: pytest.FixtureRequest, running: BrokerThread | ClusterThread) -> Iterator[None]:
    """A test that has failed already does not fail because of faults or awaits that it never came to. The latter are
    shown, because they may be the cause.
    """
    failed_before = request.session.testsfailed
    yield
    if request.session.testsfailed > failed_before:
        running.faults.clear()
        for note in running.faults.calls.notes():
            print(note, file=sys.stderr)


def _mark(request: pytest.FixtureRequest, name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns the arguments of the closest mark."""
    mark: pytest.Mark | None = request.node.get_closest_marker(name)
    return ((), {}) if mark is None else (mark.args, dict(mark.kwargs))
