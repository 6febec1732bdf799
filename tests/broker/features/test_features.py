"""Which features a broker and the releases of Kafka support, what is finalized, and which updates are allowed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.broker.features.features import (
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    OF_KRAFT,
    SHARE_VERSION,
    SUPPORTED,
    TRANSACTION_VERSION,
    Feature,
    first_levels,
    of_release,
    registered,
)
from odradek.broker.features.finalized import FinalizedFeatures
from odradek.broker.features.updates import FeatureUpdate, lacking, updated
from odradek.broker.settings.odradek import RELEASES
from odradek.broker.settings.values import ConfigError
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.schema import Versions
from odradek.protocol.wire_codes import UpgradeType

VECTOR = Path(__file__).parent.parent.parent / "vectors" / "features_of_releases.json"
"""What ApiVersions 4 of running brokers of 4.0 to 4.4 lists, which were formatted with the defaults."""
UPGRADE, SAFE, UNSAFE = UpgradeType


@pytest.fixture
def all_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with all features of 4.4."""
    for name, (lowest, highest) in json.loads(VECTOR.read_text())["4.4"]["supported"].items():
        monkeypatch.setitem(SUPPORTED, name, Feature(lowest, highest, highest))


@pytest.fixture
def some_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with the features of consumer groups and transactions, and no other."""
    for name in SUPPORTED.keys() - OF_KRAFT:
        monkeypatch.setitem(SUPPORTED, name, Feature(0, 0, 0))
    monkeypatch.setitem(SUPPORTED, GROUP_VERSION, Feature(0, 1, 1))
    monkeypatch.setitem(SUPPORTED, TRANSACTION_VERSION, Feature(0, 2, 2))


@pytest.mark.usefixtures("all_supported")
@pytest.mark.parametrize("release", RELEASES)
def test_a_release_has_the_features_of_running_brokers(release: str) -> None:
    listed = json.loads(VECTOR.read_text()).get(release, {"supported": {}, "finalized": {}})
    found = of_release(release)
    assert {name: [each.lowest, each.highest] for name, each in found.items()} == listed["supported"]
    features = FinalizedFeatures(found)
    features.put(first_levels(release), 0)
    assert features.levels == listed["finalized"]


@pytest.mark.usefixtures("all_supported")
def test_by_default_a_broker_supports_what_the_newest_release_does() -> None:
    assert of_release(None) == of_release(RELEASES[-1])
    assert first_levels(None) == first_levels(RELEASES[-1])


@pytest.mark.usefixtures("some_supported")
def test_a_release_has_no_feature_that_this_broker_does_not_support() -> None:
    assert of_release("4.4")[SHARE_VERSION] == Feature(0, 0, 0)
    assert of_release("4.0")[TRANSACTION_VERSION] == Feature(0, 2, 2)
    assert first_levels("4.4") == {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
    assert first_levels("3.9") == {}


@pytest.mark.usefixtures("some_supported")
def test_a_broker_registers_what_it_supports_except_kafkas_own() -> None:
    assert registered() == {GROUP_VERSION: Versions(0, 1), TRANSACTION_VERSION: Versions(0, 2)}


@pytest.mark.usefixtures("some_supported")
def test_the_first_levels_can_be_chosen() -> None:
    assert first_levels(None, [f"{TRANSACTION_VERSION}=1"]) == {GROUP_VERSION: 1, TRANSACTION_VERSION: 1}
    assert first_levels(None, [f"{TRANSACTION_VERSION}=0", f"{GROUP_VERSION}=0"]) == {}


@pytest.mark.usefixtures("some_supported")
@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ("nope=1", "nope=1 names none of the features group.version, "),
        (f"{METADATA_VERSION}=33", "names none of the features"),
        (GROUP_VERSION, "the levels of this feature are 0 to 1"),
        (f"{GROUP_VERSION}=2", "the levels of this feature are 0 to 1"),
        (f"{GROUP_VERSION}=-1", "the levels of this feature are 0 to 1"),
        (f"{SHARE_VERSION}=1", "the levels of this feature are 0 to 0"),
    ],
)
def test_an_impossible_first_level_is_refused(chosen: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        first_levels(None, [chosen])


# What is finalized


@pytest.mark.usefixtures("some_supported")
def test_a_level_above_what_is_supported_is_the_highest_supported() -> None:
    features = FinalizedFeatures(SUPPORTED)
    features.put({TRANSACTION_VERSION: 3, "of.the.future": 1}, 0)
    assert features.levels.get(TRANSACTION_VERSION) == 2
    assert "of.the.future" not in features.levels


@pytest.mark.usefixtures("some_supported")
def test_as_a_release_before_4_0_every_level_is_0() -> None:
    features = FinalizedFeatures(of_release("3.9"))
    features.put({GROUP_VERSION: 1, TRANSACTION_VERSION: 2}, 5)
    assert features.levels == {}


# Updates

NOW = {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}


@pytest.mark.usefixtures("some_supported")
@pytest.mark.parametrize(
    ("updates", "after"),
    [
        ([], NOW),
        ([(GROUP_VERSION, 1, UPGRADE)], NOW),
        ([(GROUP_VERSION, 1, SAFE)], NOW),
        ([(GROUP_VERSION, 0, SAFE)], {TRANSACTION_VERSION: 2}),
        ([(GROUP_VERSION, 0, UNSAFE), (TRANSACTION_VERSION, 1, SAFE)], {TRANSACTION_VERSION: 1}),
        ([(GROUP_VERSION, 0, SAFE), (GROUP_VERSION, 0, SAFE)], {TRANSACTION_VERSION: 2}),
        ([(GROUP_VERSION, 0, UNSAFE), (GROUP_VERSION, 1, UPGRADE)], NOW),
        ([(METADATA_VERSION, 33, UPGRADE), (KRAFT_VERSION, 1, UPGRADE)], NOW),
        ([(SHARE_VERSION, 0, SAFE)], NOW),
    ],
)
def test_updates_that_kafka_allows(updates: list[tuple[str, int, int]], after: Mapping[str, int]) -> None:
    assert updated(NOW, [FeatureUpdate(*each) for each in updates], {1: registered()}) == after


@pytest.mark.usefixtures("some_supported")
@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (("nope", 1, UPGRADE), "knows no such feature"),
        (("nope", 0, UNSAFE), "knows no such feature"),
        (("", 1, UPGRADE), "knows no such feature"),
        ((GROUP_VERSION, 1, 0), "0 is no type"),
        ((GROUP_VERSION, 1, 7), "7 is no type"),
        ((GROUP_VERSION, -1, UPGRADE), "begin with 0"),
        ((GROUP_VERSION, 2, UPGRADE), "does not support it"),
        ((SHARE_VERSION, 1, UPGRADE), "does not support it"),
        ((GROUP_VERSION, 0, UPGRADE), "less than 1"),
        ((METADATA_VERSION, 32, SAFE), "always 33"),
        ((METADATA_VERSION, 34, UPGRADE), "always 33"),
        ((KRAFT_VERSION, 0, UNSAFE), "always 1"),
    ],
)
def test_updates_that_kafka_refuses_leave_everything_as_it_is(update: tuple[str, int, int], reason: str) -> None:
    good = FeatureUpdate(TRANSACTION_VERSION, 1, SAFE)
    for updates in ([good, FeatureUpdate(*update)], [FeatureUpdate(*update), good]):
        with pytest.raises(ProtocolError, match=reason) as raised:
            updated(NOW, updates, {1: registered()})
        assert raised.value.code is ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.usefixtures("some_supported")
@pytest.mark.parametrize("kind", [SAFE, UNSAFE])
def test_a_downgrade_does_not_raise_a_level(kind: int) -> None:
    with pytest.raises(ProtocolError, match="more than 0"):
        updated({}, [FeatureUpdate(GROUP_VERSION, 1, kind)], {})


@pytest.mark.usefixtures("some_supported")
def test_a_level_is_raised_once_every_broker_supports_it() -> None:
    old: dict[str, Versions] = {}
    part = {TRANSACTION_VERSION: Versions(0, 1)}
    raise_group = [FeatureUpdate(GROUP_VERSION, 1, UPGRADE)]
    for brokers in ({1: registered(), 7: old}, {1: registered(), 7: part}):
        with pytest.raises(ProtocolError, match="not supported by broker 7"):
            updated({}, raise_group, brokers)
    raise_transactions = [FeatureUpdate(TRANSACTION_VERSION, 1, UPGRADE)]
    assert updated({}, raise_transactions, {1: registered(), 7: part}) == {TRANSACTION_VERSION: 1}
    with pytest.raises(ProtocolError, match="not supported by broker 7, 8"):
        updated({}, raise_transactions, {1: registered(), 7: old, 8: old})
    assert updated(NOW, [FeatureUpdate(GROUP_VERSION, 0, SAFE)], {1: registered(), 7: old}) == {TRANSACTION_VERSION: 2}


@pytest.mark.usefixtures("some_supported")
def test_a_broker_lacks_the_finalized_features_that_it_has_not_registered() -> None:
    assert lacking(NOW, registered()) == []
    assert lacking(NOW, {}) == [GROUP_VERSION, TRANSACTION_VERSION]
    assert lacking(NOW, {GROUP_VERSION: Versions(0, 1), TRANSACTION_VERSION: Versions(0, 1)}) == [TRANSACTION_VERSION]
    assert lacking({"of.others": 3}, {}) == [], "nobody here can tell"
