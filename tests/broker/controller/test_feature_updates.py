"""The levels of the cluster's features: the first ones, their updates, and brokers that do not support them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.features.features import GROUP_VERSION, OF_KRAFT, SUPPORTED, TRANSACTION_VERSION, Feature
from odradek.broker.features.finalized import FinalizedFeatures
from odradek.broker.features.updates import FeatureUpdate
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import Create
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.schema import Versions
from odradek.protocol.wire_codes import UpgradeType
from tests.broker.controller.fleet import Fleet

FIRST = {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}
LOWER_GROUPS = FeatureUpdate(GROUP_VERSION, 0, UpgradeType.SAFE_DOWNGRADE)
RAISE_GROUPS = FeatureUpdate(GROUP_VERSION, 1, UpgradeType.UPGRADE)


@pytest.fixture(autouse=True)
def supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUPPORTED, GROUP_VERSION, Feature(0, 1, 1))
    monkeypatch.setitem(SUPPORTED, TRANSACTION_VERSION, Feature(0, 2, 2))


def fleet_of(*ids: int) -> Fleet:
    fleet = Fleet(ids)
    fleet.first_features = FIRST
    return fleet


async def stored(fleet: Fleet) -> dict[str, int]:
    return znodes.parse_features((await fleet.observer.get(znodes.FEATURE)).data)


async def update(fleet: Fleet, *updates: FeatureUpdate, validate_only: bool = False) -> None:
    node = fleet.active()
    await fleet.as_node(node.broker_id, node.controller.features.update(updates, validate_only=validate_only))


def levels_of(features: FinalizedFeatures) -> dict[str, int]:
    """Returns the levels that the cluster stores."""
    return {name: level for name, level in features.levels.items() if name not in OF_KRAFT}


def test_the_controller_of_a_new_cluster_finalizes_the_first_levels() -> None:
    async def scene(fleet: Fleet) -> None:
        assert await stored(fleet) == FIRST
        assert (levels_of(fleet.nodes[1].finalized), fleet.nodes[1].finalized.epoch) == (FIRST, 0)

    fleet_of(1, 2).run(scene)


def test_no_feature_is_finalized_at_first_if_a_registered_broker_supports_none() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.start(1)
        assert await stored(fleet) == {}
        with pytest.raises(ProtocolError, match="not supported by broker 2") as raised:
            await update(fleet, RAISE_GROUPS)
        assert raised.value.code is ErrorCode.INVALID_UPDATE_VERSION
        fleet.kill(2)
        await fleet.quiet()
        await update(fleet, RAISE_GROUPS)
        assert await stored(fleet) == {GROUP_VERSION: 1}

    fleet = fleet_of(2)
    fleet.features[2] = {}
    fleet.run(scene)


def test_an_entry_of_a_shared_store_stays_as_it_is() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.observer.multi([Create(path) for path in znodes.PERSISTENT_PATHS])
        await fleet.observer.create(znodes.FEATURE, znodes.encode_features({}))
        await fleet.start(1)
        assert await stored(fleet) == {}
        await update(fleet, RAISE_GROUPS)
        assert await stored(fleet) == {GROUP_VERSION: 1}

    fleet_of().run(scene)


def test_an_update_is_stored_known_to_the_next_controller_and_only_validated_on_demand() -> None:
    async def scene(fleet: Fleet) -> None:
        await update(fleet, LOWER_GROUPS, validate_only=True)
        assert await stored(fleet) == FIRST
        await update(fleet, LOWER_GROUPS)
        assert await stored(fleet) == {TRANSACTION_VERSION: 2}
        assert fleet.nodes[1].finalized.epoch == (await fleet.observer.get(znodes.FEATURE)).version == 1
        fleet.kill(1)
        await fleet.quiet()
        assert fleet.active().broker_id == 2
        assert (levels_of(fleet.nodes[2].finalized), fleet.nodes[2].finalized.epoch) == ({TRANSACTION_VERSION: 2}, 1)
        await update(fleet, RAISE_GROUPS)
        assert await stored(fleet) == FIRST

    fleet_of(1, 2).run(scene)


def test_an_update_without_effect_writes_nothing() -> None:
    async def scene(fleet: Fleet) -> None:
        await update(fleet, RAISE_GROUPS)
        assert (await fleet.observer.get(znodes.FEATURE)).version == 0

    fleet_of(1).run(scene)


class DiesAfterWriting:
    """A session of a controller that is killed when the store has taken its change of the features."""

    def __init__(self, fleet: Fleet, session: Any) -> None:
        self.fleet, self.session = fleet, session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    async def pipeline(self, groups: Any) -> Any:
        groups = [list(group) for group in groups]
        outcomes = await self.session.pipeline(groups)
        if any(each.path == znodes.FEATURE for group in groups for each in group) and len(self.fleet.nodes) == 2:
            self.fleet.kill(1)
        return outcomes


def test_a_controller_that_dies_before_it_answers_has_updated_the_features_and_the_next_one_says_so() -> None:
    async def scene(fleet: Fleet) -> None:
        node = fleet.nodes[1]
        asking = asyncio.ensure_future(
            fleet.as_node(1, node.controller.features.update([LOWER_GROUPS], validate_only=False))
        )
        await fleet.quiet(3)
        assert not asking.done() or asking.cancelled()
        asking.cancel()
        assert fleet.active().broker_id == 2
        assert await stored(fleet) == {TRANSACTION_VERSION: 2}
        await update(fleet, LOWER_GROUPS)
        assert (await fleet.observer.get(znodes.FEATURE)).version == 1

    fleet = fleet_of(1, 2)
    fleet.around_store = lambda node, session: DiesAfterWriting(fleet, session) if node.broker_id == 1 else session
    fleet.run(scene)


def test_an_update_starts_over_from_what_somebody_else_has_written() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.observer.set(znodes.FEATURE, znodes.encode_features({TRANSACTION_VERSION: 1, "of.others": 4}))
        await update(fleet, RAISE_GROUPS)
        assert await stored(fleet) == {GROUP_VERSION: 1, TRANSACTION_VERSION: 1, "of.others": 4}

    fleet = fleet_of(1)
    fleet.first_features = {}
    fleet.run(scene)


def test_damaged_features_are_left_alone_and_not_updated() -> None:
    async def scene(fleet: Fleet) -> None:
        await fleet.observer.multi([Create(path) for path in znodes.PERSISTENT_PATHS])
        await fleet.observer.create(znodes.FEATURE, b"{")
        await fleet.start(1)
        with pytest.raises(ProtocolError) as raised:
            await update(fleet, RAISE_GROUPS)
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await fleet.observer.get(znodes.FEATURE)).data == b"{"

    fleet_of().run(scene)


def test_a_broker_without_a_finalized_feature_is_none_until_the_feature_is_lowered() -> None:
    async def scene(fleet: Fleet) -> None:
        fleet.features[3] = {TRANSACTION_VERSION: Versions(0, 2)}
        await fleet.start(3)
        await fleet.quiet()
        assert set(fleet.nodes[1].broker.alive) == {1, 2}
        assert fleet.nodes[3].broker.requests == []
        await update(fleet, LOWER_GROUPS)
        await fleet.quiet()
        assert set(fleet.nodes[1].broker.alive) == {1, 2, 3}
        with pytest.raises(ProtocolError, match="not supported by broker 3"):
            await update(fleet, RAISE_GROUPS)

    fleet_of(1, 2).run(scene)
