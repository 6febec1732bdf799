"""Which subscriptions concern a client, and what it is to push."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from odradek.broker.background.stepwise import finished
from odradek.broker.settings.client_metrics import check_client_metrics
from odradek.broker.telemetry.subscriptions import Subscriptions, Wanted
from odradek.protocol.errors import ErrorCode, ProtocolError

CLIENT: Mapping[str, str | None] = {
    "client_instance_id": "ABEiM0RVZneImaq7zN3u_w",
    "client_id": "orders-1",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.4.0",
    "client_source_address": "127.0.0.1",
    "client_source_port": "50123",
}
INSTANCE = UUID("00112233-4455-6677-8899-aabbccddeeff")


class Stored:
    """The settings of subscriptions, as the metadata cache keeps them."""

    def __init__(self, **configs: Mapping[str, str]) -> None:
        self.changes = 0
        self.configs: dict[str, Mapping[str, str]] = {}
        self.subscriptions = Subscriptions(lambda: (self.changes, self.configs))
        for name, config in configs.items():
            self.put(name, config)

    def put(self, name: str, config: Mapping[str, str]) -> None:
        self.changes += 1
        if config:
            self.configs[name] = MappingProxyType(dict(config))
        else:
            del self.configs[name]

    def wanted(self, **client: str | None) -> Wanted:
        finished(self.subscriptions.refresh())
        return finished(self.subscriptions.wanted({**CLIENT, **client}))


def concerns(match: str, **client: str | None) -> bool:
    return Stored(s={"metrics": "m", "match": match}).wanted(**client).metrics == ("m",)


def test_without_a_subscription_a_client_has_nothing_to_push() -> None:
    assert Stored().wanted() == Wanted((), 300_000)


def test_a_subscription_without_patterns_concerns_all_clients() -> None:
    assert Stored(s={"metrics": "b., a."}).wanted(client_id=None) == Wanted(("a.", "b."), 300_000)


@pytest.mark.parametrize(
    "match",
    [
        "client_id=orders-.*",
        "client_id = orders-1 ",
        "client_software_name=apache-kafka-java,client_software_version=4[.].*",
        "client_source_address=127[.]0[.]0[.]1,client_source_port=[0-9]+",
        "client_instance_id=ABEiM0RVZneImaq7zN3u_w",
        "client_id=other,client_id=orders-1",
    ],
)
def test_all_patterns_match_the_whole_of_a_value(match: str) -> None:
    assert concerns(match)


@pytest.mark.parametrize(
    "match",
    [
        "client_id=orders",
        "client_id=rders-1",
        "client_id=ORDERS-1",
        "client_id=orders-1,client_source_port=1",
        "client_id=orders-1,client_id=other",
    ],
)
def test_one_pattern_that_does_not_match_is_enough(match: str) -> None:
    assert not concerns(match)


def test_a_value_that_a_client_does_not_have_matches_nothing() -> None:
    assert not concerns("client_id=.*", client_id=None)


def test_a_client_pushes_what_all_of_its_subscriptions_ask_for_at_the_shortest_interval() -> None:
    stored = Stored(
        s1={"metrics": "b,a,b", "interval.ms": "1000"},
        s2={"metrics": "c", "interval.ms": "500", "match": "client_id=orders-.*"},
        s3={"metrics": "d", "interval.ms": "100", "match": "client_id=payments"},
        s4={"interval.ms": "400000"},
    )
    assert stored.wanted() == Wanted(("a", "b", "c"), 500)
    assert stored.wanted(client_id="other") == Wanted(("a", "b"), 1000)


def test_an_interval_is_at_most_the_default() -> None:
    assert Stored(s={"metrics": "m", "interval.ms": "3600000"}).wanted() == Wanted(("m",), 300_000)


def test_a_star_stands_for_all_metrics() -> None:
    assert Stored(s1={"metrics": "a,b"}, s2={"metrics": "*"}).wanted().metrics == ("*",)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Wanted((), 300_000), -725132322),
        (Wanted(("z",), 300_000), -1574711899),
        (Wanted(("z",), 200), 1740847023),
    ],
)
def test_the_id_of_a_subscription_is_kafkas(wanted: Wanted, expected: int) -> None:
    """Returned by Kafka 4.4.0 with a plugin."""
    assert wanted.id_for(INSTANCE) == expected


def test_ids_of_other_instances_and_subscriptions_differ() -> None:
    ids = {
        wanted.id_for(instance)
        for wanted in (Wanted(("a",), 100), Wanted(("b",), 100), Wanted(("a",), 101), Wanted(("a", "b"), 100))
        for instance in (UUID(int=2), UUID(int=3 << 64))
    }
    assert len(ids) == 8
    assert all(-(2**31) <= each < 2**31 for each in ids)


def test_a_change_raises_the_version_and_is_taken_over() -> None:
    stored = Stored(s={"metrics": "a"})
    assert stored.wanted().metrics == ("a",)
    version = stored.subscriptions.version
    assert stored.wanted().metrics == ("a",)
    assert stored.subscriptions.version == version
    stored.put("s", {"metrics": "b"})
    assert stored.wanted().metrics == ("b",)
    assert stored.subscriptions.version == version + 1
    stored.put("s", {})
    assert stored.wanted() == Wanted((), 300_000)
    assert stored.subscriptions.version == version + 2


def test_a_change_of_something_else_raises_no_version() -> None:
    stored = Stored(s={"metrics": "a"})
    stored.wanted()
    version = stored.subscriptions.version
    stored.changes += 1
    stored.wanted()
    assert stored.subscriptions.version == version


@pytest.mark.parametrize(
    "config",
    [{"match": "client_id=("}, {"match": "who=x"}, {"interval.ms": "99"}, {"interval.ms": "x"}, {"other": "x"}],
)
def test_stored_settings_that_cannot_be_used_ask_for_nothing_and_are_logged_once(config: Mapping[str, str]) -> None:
    stored = Stored(bad={"metrics": "a", **config}, good={"metrics": "b"})
    with capture_logs() as logs:
        assert stored.wanted() == Wanted(("b",), 300_000)
        stored.put("good", {"metrics": "c"})
        assert stored.wanted() == Wanted(("c",), 300_000)
    assert [each["name"] for each in logs if each["event"] == "stored subscription to client metrics ignored"] == [
        "bad"
    ]


@pytest.mark.parametrize("expression", [r"\\p{L}", "a{0,1000}"])
def test_patterns_that_would_take_long_to_compile_together_are_refused(expression: str) -> None:
    patterns = ",".join([f"client_id={expression}"] * 1000)
    with pytest.raises(ProtocolError) as refused:
        check_client_metrics({"match": patterns})
    assert refused.value.code is ErrorCode.INVALID_CONFIG


def test_a_large_pattern_is_not_matched_against_an_endless_client_id() -> None:
    with pytest.raises(ProtocolError) as refused:
        concerns("client_id=" + "a?b?" * 2000, client_id="x" * 30_000)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_many_subscriptions_are_read_and_matched_in_steps() -> None:
    stored = Stored(**{f"s{n}": {"metrics": f"m{n}", "match": f"client_id=orders-{n % 3}"} for n in range(2000)})
    assert sum(1 for _ in stored.subscriptions.refresh()) > 50
    assert sum(1 for _ in stored.subscriptions.wanted(CLIENT)) > 10
    assert len(stored.wanted().metrics) == 667
