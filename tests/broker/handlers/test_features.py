"""Features over a socket: what ApiVersions lists, UpdateFeatures, and what other brokers know."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.features.features import GROUP_VERSION, SUPPORTED, TRANSACTION_VERSION, Feature
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.features import UpdateFeaturesRequest
from odradek.testing import in_process_broker, in_process_cluster
from tests.patience import until
from tests.wire.records import connect

KRAFT = {"metadata.version": 33, "kraft.version": 1}
FIRST = {**KRAFT, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
Key = UpdateFeaturesRequest.FeatureUpdateKey


@pytest.fixture
def supported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker with the features of consumer groups and transactions, and no other."""
    for name in SUPPORTED.keys() - KRAFT.keys():
        monkeypatch.setitem(SUPPORTED, name, Feature(0, 0, 0))
    monkeypatch.setitem(SUPPORTED, GROUP_VERSION, Feature(0, 1, 1))
    monkeypatch.setitem(SUPPORTED, TRANSACTION_VERSION, Feature(0, 2, 2))


async def ask(bootstrap: str, request: Any, version: int) -> Any:
    async with await connect(bootstrap, timeout_ms=10_000) as client:
        return await client.send(request, version=version)


def hello(**more: Any) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="a", client_software_version="1", **more)


async def finalized(bootstrap: str) -> dict[str, int]:
    answer = await ask(bootstrap, hello(), 4)
    assert all(each.min_version_level == each.max_version_level for each in answer.finalized_features)
    return {each.name: each.max_version_level for each in answer.finalized_features}


async def update(bootstrap: str, *updates: tuple[str, int, int], version: int = 2, validate_only: bool = False) -> Any:
    keys = [Key(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates]
    return await ask(bootstrap, UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only), version)


LOWER, RAISE = (GROUP_VERSION, 0, 2), (GROUP_VERSION, 1, 1)


@pytest.mark.usefixtures("supported")
@pytest.mark.parametrize("version", range(6))
async def test_api_versions_lists_features_that_begin_at_0_since_version_4(version: int) -> None:
    async with in_process_broker() as broker:
        answer = await ask(broker.bootstrap, hello() if version >= 3 else ApiVersionsRequest(), version)
    listed = {each.name: (each.min_version, each.max_version) for each in answer.supported_features}
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    metadata_version = {"metadata.version": (7, 33)}
    others = {"kraft.version": (0, 1), GROUP_VERSION: (0, 1), TRANSACTION_VERSION: (0, 2)}
    assert listed == ({} if version < 3 else metadata_version if version == 3 else {**metadata_version, **others})
    assert levels == (FIRST if version >= 3 else {})
    assert answer.finalized_features_epoch == (0 if version >= 3 else -1)


async def test_a_broker_lists_only_what_it_serves() -> None:
    async with in_process_broker() as broker:
        answer = await ask(broker.bootstrap, hello(), 4)
        served = {name: (each.lowest, each.highest) for name, each in SUPPORTED.items() if each.highest}
        assert {each.name: (each.min_version, each.max_version) for each in answer.supported_features} == served
        refused = await update(broker.bootstrap, ("share.version", 1, 1))
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION


@pytest.mark.usefixtures("supported")
@pytest.mark.parametrize(
    ("release", "levels"),
    [
        ("4.3", {"metadata.version": 30, "kraft.version": 1, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}),
        ("4.0", {"metadata.version": 25, "kraft.version": 1, GROUP_VERSION: 1, TRANSACTION_VERSION: 2}),
        ("3.9", {}),
    ],
)
async def test_a_broker_lists_the_features_of_the_release_that_it_serves(release: str, levels: dict[str, int]) -> None:
    async with in_process_broker(odradek_as_version=release) as broker:
        assert await finalized(broker.bootstrap) == levels


# The broker that the client expects (KIP-1242)

RIGHT = object()


@pytest.mark.parametrize(
    ("cluster", "node", "code"),
    [
        (None, -1, ErrorCode.NONE),
        (RIGHT, 0, ErrorCode.NONE),
        (RIGHT, 7, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", 0, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("", 0, ErrorCode.REBOOTSTRAP_REQUIRED),
        (None, 7, ErrorCode.INVALID_REQUEST),
        (RIGHT, -1, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_client_that_means_another_broker_is_told_so(cluster: Any, node: int, code: ErrorCode) -> None:
    async with in_process_broker({"broker.id": "0"}) as broker:
        named = broker.metadata.cluster_id if cluster is RIGHT else cluster
        answer = await ask(broker.bootstrap, hello(cluster_id=named, node_id=node), 5)
    assert answer.error_code == code
    assert bool(answer.api_keys) == bool(answer.finalized_features) == (code == ErrorCode.NONE)


async def test_bad_software_comes_before_another_broker() -> None:
    request = ApiVersionsRequest(client_software_name="-", client_software_version="1", cluster_id="another", node_id=0)
    async with in_process_broker() as broker:
        assert (await ask(broker.bootstrap, request, 5)).error_code == ErrorCode.INVALID_REQUEST


# Updates


@pytest.mark.usefixtures("supported")
@pytest.mark.parametrize("version", [1, 2])
async def test_an_update_is_answered_as_kafka_does(version: int) -> None:
    async with in_process_broker() as broker:
        validated = await update(broker.bootstrap, LOWER, version=version, validate_only=True)
        assert await finalized(broker.bootstrap) == FIRST
        lowered = await update(broker.bootstrap, LOWER, (TRANSACTION_VERSION, 1, 3), version=version)
        assert await finalized(broker.bootstrap) == {**KRAFT, TRANSACTION_VERSION: 1}
        refused = await update(broker.bootstrap, RAISE, ("nope", 1, 1), version=version)
        assert await finalized(broker.bootstrap) == {**KRAFT, TRANSACTION_VERSION: 1}
        assert (await ask(broker.bootstrap, hello(), 4)).finalized_features_epoch == 1
    results = [(GROUP_VERSION, 0, "NONE"), (TRANSACTION_VERSION, 0, "NONE")] if version == 1 else []
    assert [(each.feature, each.error_code, each.error_message) for each in lowered.results] == results
    assert [each.feature for each in validated.results] == [name for name, _, _ in results[:1]]
    assert (lowered.error_code, lowered.error_message) == (ErrorCode.NONE, None)
    assert (refused.error_code, refused.results) == (ErrorCode.INVALID_UPDATE_VERSION, [])
    assert "nope" in refused.error_message


@pytest.mark.usefixtures("supported")
async def test_version_0_says_only_whether_a_downgrade_is_allowed() -> None:
    async with in_process_broker() as broker:
        codes = []
        for is_allowed in (False, True):
            keys = [Key(feature=GROUP_VERSION, max_version_level=0, allow_downgrade=is_allowed)]
            codes.append((await ask(broker.bootstrap, UpdateFeaturesRequest(feature_updates=keys), 0)).error_code)
        assert await finalized(broker.bootstrap) == {**KRAFT, TRANSACTION_VERSION: 2}
    assert codes == [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.NONE]


async def test_a_store_from_before_there_were_features_gets_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The features that this release supports are raised between two starts; the operator lowers one later."""
    settings = {"log.dirs": str(tmp_path)}
    for name in SUPPORTED.keys() - KRAFT.keys():
        monkeypatch.setitem(SUPPORTED, name, Feature(0, 0, 0))
    async with in_process_broker(settings) as broker:
        assert await finalized(broker.bootstrap) == KRAFT
    monkeypatch.setitem(SUPPORTED, GROUP_VERSION, Feature(0, 1, 1))
    async with in_process_broker(settings) as broker:
        assert await finalized(broker.bootstrap) == {**KRAFT, GROUP_VERSION: 1}
        assert (await update(broker.bootstrap, LOWER)).error_code == ErrorCode.NONE
    async with in_process_broker(settings) as broker:
        assert await finalized(broker.bootstrap) == KRAFT


@pytest.mark.usefixtures("supported")
async def test_a_new_cluster_begins_with_the_levels_that_its_settings_choose() -> None:
    async with in_process_broker({"odradek.initial.features": f"{GROUP_VERSION}=0,{TRANSACTION_VERSION}=1"}) as broker:
        assert await finalized(broker.bootstrap) == {**KRAFT, TRANSACTION_VERSION: 1}


@pytest.mark.usefixtures("supported")
async def test_every_broker_of_a_cluster_follows_the_controllers_updates() -> None:
    async with in_process_cluster(3) as cluster:
        brokers = {broker.broker_id: broker for broker in cluster.brokers.values()}
        active = next(broker for broker in brokers.values() if broker.controller.is_active)
        for broker in brokers.values():
            assert await finalized(broker.bootstrap) == FIRST
        other = next(broker for broker in brokers.values() if broker is not active)
        assert (await update(other.bootstrap, LOWER)).error_code == ErrorCode.NOT_CONTROLLER
        for change, levels in ((LOWER, {**KRAFT, TRANSACTION_VERSION: 2}), (RAISE, FIRST)):
            assert (await update(active.bootstrap, change)).error_code == ErrorCode.NONE
            assert await finalized(active.bootstrap) == levels
            await until(lambda: {broker.features.epoch for broker in brokers.values()} == {active.features.epoch})
            for broker in brokers.values():
                assert await finalized(broker.bootstrap) == levels
