"""A broker's registration in ZooKeeper."""

from __future__ import annotations

from random import Random

import pytest

from odradek.broker.background.background import Background
from odradek.broker.cluster.registration import BrokerRegistration
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.start_up import make_persistent_entries, open_store
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.timer import ManualClock
from tests.zookeeper.model import ServedConnection, ZooKeeperModel
from tests.zookeeper.stores import store_at

BROKER = BrokerInfo(1, {"PLAINTEXT": BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT")})
ASKED_MS = 20


def registration(store: ZooKeeperStore, background: Background) -> BrokerRegistration:
    return BrokerRegistration(
        store,
        clock=ManualClock(),
        session_timeout_ms=ASKED_MS,
        spawn=background.spawn,
        on_registered=lambda _: None,
    )


async def test_a_killed_broker_is_waited_for_as_long_as_its_session_was_granted() -> None:
    """Longer than was asked for: the server's ticks are longer."""
    background = Background()
    async with ZooKeeperModel(tick_s=0.3).served() as address:
        killed, again = (store_at(address, session_timeout_ms=ASKED_MS) for _ in range(2))
        await killed.open()
        await make_persistent_entries(killed)
        old = await registration(killed, background).register(BROKER)
        kill(killed)
        await again.open()
        new = await registration(again, background).register(BROKER)
        assert new.epoch > old.epoch
        await background.stop()
        await again.close()


@pytest.mark.parametrize("is_pinned", [False, True], ids=["any server", "a server of the cluster"])
@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_lost_answer_and_an_expired_session_leave_one_entry_of_the_living_session(
    monkeypatch: pytest.MonkeyPatch, times: int, is_pinned: bool
) -> None:
    """The entry is created, the answer is lost, and the session ends: again and again."""
    background, model = Background(), ZooKeeperModel()
    path = znodes.broker_path(BROKER.broker_id)
    lost: list[int] = []
    send = ServedConnection.send

    def lose(connection: ServedConnection, data: bytes) -> None:
        if model.tree.get(path) is not None and len(lost) < times and connection.session_id not in lost:
            lost.append(connection.session_id)
            connection.abort()
            model.expire(connection.session_id)
        else:
            send(connection, data)

    async with model.served() as address:
        store = store_at(address)
        await (open_store(store, None, Random(1)) if is_pinned else opened(store))
        monkeypatch.setattr(ServedConnection, "send", lose)
        registered = await registration(store, background).register(BROKER)
        assert len(lost) == times
        entry = await store.get(path)
        assert (entry.owner, entry.created) == (store.session_id, registered.epoch)
        assert store.session_id not in lost
        assert set(model.sessions) == {store.session_id}
        await background.stop()
        await store.close()


async def opened(store: ZooKeeperStore) -> None:
    await store.open()
    await make_persistent_entries(store)


def kill(store: ZooKeeperStore) -> None:
    """As kill -9: the session is left to expire, and nobody connects again."""
    assert store._connecting is not None
    store._connecting.cancel()
    assert store._connection is not None
    store._connection.abort("killed")
