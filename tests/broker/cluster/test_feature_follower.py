"""A broker that follows the levels of the cluster's features."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from odradek.broker.background.background import Background
from odradek.broker.cluster.deltas import Deltas
from odradek.broker.cluster.feature_follower import FeatureFollower
from odradek.broker.features.features import GROUP_VERSION, SUPPORTED, Feature
from odradek.broker.features.finalized import NO_EPOCH, FinalizedFeatures
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.interface import MetadataStore
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.timer import ManualClock
from tests.patience import until
from tests.simulation.loop import run_in_virtual_time

UNUSED: Any = None
ON: Mapping[str, int] = {GROUP_VERSION: 1}


@pytest.fixture(autouse=True)
def supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUPPORTED, GROUP_VERSION, Feature(0, 1, 1))


def followed(scene: Callable[[SharedStore, MetadataStore, FinalizedFeatures], Awaitable[None]]) -> None:
    """Runs a scene: the store, the session of somebody who writes, and what a broker knows that follows."""

    async def whole() -> None:
        shared = SharedStore(session_timeout_ms=6000)
        writer, store = shared.session("writer"), shared.session("broker")
        await writer.open()
        await store.open()
        features = FinalizedFeatures(SUPPORTED)
        apply = Deltas(UNUSED, UNUSED, UNUSED, UNUSED, None, features, UNUSED).apply_one
        background = Background()
        await FeatureFollower(store, apply, clock=ManualClock(), spawn=background.spawn).load()
        await scene(shared, writer, features)
        await store.close()
        await writer.close()
        await background.stop()

    run_in_virtual_time(whole())


async def finalize(writer: MetadataStore, levels: Mapping[str, int]) -> None:
    await writer.set(znodes.FEATURE, znodes.encode_features(levels))


def level_of(features: FinalizedFeatures) -> int:
    return features.levels.get(GROUP_VERSION, 0)


def test_it_hears_of_an_entry_that_comes_later_and_of_each_change() -> None:
    async def scene(_shared: SharedStore, writer: MetadataStore, features: FinalizedFeatures) -> None:
        assert (level_of(features), features.epoch) == (0, NO_EPOCH)
        await writer.create(znodes.FEATURE, znodes.encode_features(ON))
        await until(lambda: (level_of(features), features.epoch) == (1, 0))
        for epoch, levels in enumerate(({}, ON, {}), 1):
            await finalize(writer, levels)
            await until(
                lambda levels=levels, epoch=epoch: (
                    (level_of(features), features.epoch) == (levels.get(GROUP_VERSION, 0), epoch)
                )
            )

    followed(scene)


def test_it_reads_what_has_changed_while_it_was_away() -> None:
    async def scene(shared: SharedStore, writer: MetadataStore, features: FinalizedFeatures) -> None:
        await writer.create(znodes.FEATURE, znodes.encode_features({}))
        for ends, levels in ((False, ON), (True, {}), (True, ON)):
            shared.cut("broker")
            if ends:
                shared.expire("broker")
            await finalize(writer, levels)
            shared.heal("broker")
            await until(lambda levels=levels: level_of(features) == levels.get(GROUP_VERSION, 0))
        await finalize(writer, {})
        await until(lambda: level_of(features) == 0)

    followed(scene)


def test_what_cannot_be_parsed_or_is_not_supported_is_logged_and_changes_nothing() -> None:
    async def scene(_shared: SharedStore, writer: MetadataStore, features: FinalizedFeatures) -> None:
        await writer.create(znodes.FEATURE, znodes.encode_features(ON))
        await until(lambda: level_of(features) == 1)
        with capture_logs() as lines:
            await writer.set(znodes.FEATURE, b"{")
            await until(lambda: [line["event"] for line in lines] == ["finalized features not read"])
            assert (level_of(features), features.epoch) == (1, 0)
            await finalize(writer, {GROUP_VERSION: 2, "of.the.future": 1})
            await until(lambda: features.epoch == 2)
        assert lines[-1]["features"] == {GROUP_VERSION: 2, "of.the.future": 1}
        assert level_of(features) == 1

    followed(scene)
