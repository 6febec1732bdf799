"""A broker's registration in ZooKeeper."""

from __future__ import annotations

from odradek.broker.background.background import Background
from odradek.broker.cluster.registration import BrokerRegistration
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo
from odradek.broker.metadata_store.start_up import make_persistent_entries
from odradek.broker.metadata_store.zookeeper.zookeeper_store import ZooKeeperStore
from odradek.timer import ManualClock
from tests.zookeeper.model import ZooKeeperModel
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


def kill(store: ZooKeeperStore) -> None:
    """As kill -9: the session is left to expire, and nobody connects again."""
    assert store._connecting is not None
    store._connecting.cancel()
    assert store._connection is not None
    store._connection.abort("killed")
