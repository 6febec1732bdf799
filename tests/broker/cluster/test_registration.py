from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from odradek.broker.background.background import Background
from odradek.broker.cluster.registration import BrokerIdInUse, BrokerRegistration
from odradek.broker.metadata.metadata_cache import BrokerEndpoint, BrokerInfo
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.embedded_store import EmbeddedMetadataStore
from odradek.broker.metadata_store.interface import ConnectionLost, Create, Delete, Entry, MetadataStore
from odradek.broker.metadata_store.shared.shared_store import SharedStore, no_delay
from odradek.timer import ManualClock
from tests.broker.controller.harness import DIRECTORY, store_disk
from tests.simulation.loop import in_virtual_time, run_in_virtual_time

TIMEOUT_S = 6.0
PATH = znodes.broker_path(1)


def broker(port: int = 9092) -> BrokerInfo:
    return BrokerInfo(1, {"PLAINTEXT": BrokerEndpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT")})


@dataclass
class Process:
    """A broker's process as far as its registration goes."""

    store: MetadataStore
    background: Background = field(default_factory=Background)
    registered: list[BrokerInfo] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.registration = BrokerRegistration(
            self.store,
            clock=ManualClock(),
            session_timeout_ms=int(TIMEOUT_S * 1000),
            spawn=self.background.spawn,
            on_registered=self.registered.append,
        )

    @property
    def epochs(self) -> list[int]:
        return [each.epoch for each in self.registered]


class Cluster:
    def __init__(self, delay: Callable[[str], float] = no_delay) -> None:
        self.shared = SharedStore(session_timeout_ms=int(TIMEOUT_S * 1000), delay=delay)
        self.observer = self.shared.session("observer")

    async def opened(self) -> Cluster:
        await self.observer.open()
        await self.observer.multi([Create("/brokers"), Create(znodes.BROKER_IDS)])
        return self

    async def process(self, name: str = "1") -> Process:
        """Starts a process; one of the same name before it has been killed."""
        process = Process(self.shared.session(name))
        await process.store.open()
        return process

    async def entry(self) -> Entry | None:
        return await self.observer.exists(PATH)


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


def now() -> float:
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_a_broker_is_registered_with_its_addresses_and_an_epoch() -> None:
    cluster = await Cluster().opened()
    process = await cluster.process()
    assert process.registration.broker_epoch() == -1
    registered = await process.registration.register(broker())
    entry = await cluster.entry()
    assert entry is not None
    assert (entry.owner, entry.created) == (process.store.session_id, registered.epoch)
    assert znodes.parse_broker(1, entry.data, entry.created) == registered
    assert process.registered == [registered]
    assert process.registration.broker_epoch() == registered.epoch
    await process.background.stop()


@in_virtual_time
async def test_a_killed_brokers_entry_is_waited_out_and_the_new_one_stays() -> None:
    cluster = await Cluster().opened()
    killed = await cluster.process()
    old = await killed.registration.register(broker())
    await killed.background.stop()
    await asyncio.sleep(100)
    again = await cluster.process()
    started = now()
    new = await again.registration.register(broker())
    assert now() - started == pytest.approx(TIMEOUT_S)
    assert new.epoch > old.epoch
    await asyncio.sleep(10 * TIMEOUT_S)
    entry = await cluster.entry()
    assert entry is not None
    assert (entry.created, entry.owner) == (new.epoch, again.store.session_id)
    assert again.epochs == [new.epoch]
    await again.background.stop()


@in_virtual_time
async def test_the_id_of_a_living_broker_is_refused_by_name_and_its_entry_stays() -> None:
    cluster = await Cluster().opened()
    living, second = await cluster.process("living"), await cluster.process("second")
    first = await living.registration.register(broker())
    started = now()
    with pytest.raises(BrokerIdInUse, match="Another broker with id 1 is registered"):
        await second.registration.register(broker(9093))
    assert now() - started == pytest.approx(1.5 * TIMEOUT_S)
    entry = await cluster.entry()
    assert entry is not None
    assert (entry.created, entry.version) == (first.epoch, 0)
    assert (second.registered, second.registration.broker_epoch()) == ([], -1)
    await living.background.stop()
    await second.background.stop()


@in_virtual_time
async def test_each_session_that_holds_the_id_is_given_its_time_to_end() -> None:
    cluster = await Cluster().opened()
    killed, first, second = [await cluster.process(name) for name in ("killed", "first", "second")]
    await killed.registration.register(broker())
    cluster.shared.cut("killed")
    asyncio.get_running_loop().call_later(TIMEOUT_S + 1, cluster.shared.cut, "first")
    await asyncio.gather(first.registration.register(broker()), second.registration.register(broker()))
    assert now() == pytest.approx(2 * TIMEOUT_S + 1)
    entry = await cluster.entry()
    assert entry is not None
    assert entry.owner == second.store.session_id
    for process in (killed, first, second):
        await process.background.stop()


@in_virtual_time
async def test_a_broker_whose_session_was_lost_registers_again_with_a_new_epoch() -> None:
    cluster = await Cluster().opened()
    process = await cluster.process()
    await process.registration.register(broker())
    cluster.shared.expire("1")
    await settled()
    cluster.shared.cut("1")
    await asyncio.sleep(TIMEOUT_S + 1)
    assert await cluster.entry() is None
    cluster.shared.heal("1")
    await settled()
    entry = await cluster.entry()
    assert entry is not None
    assert process.epochs == sorted(set(process.epochs))
    assert len(process.epochs) == 3
    assert process.registration.broker_epoch() == process.epochs[-1] == entry.created
    await process.background.stop()


@in_virtual_time
async def test_a_short_cut_changes_nothing() -> None:
    cluster = await Cluster().opened()
    process = await cluster.process()
    registered = await process.registration.register(broker())
    cluster.shared.cut("1")
    await asyncio.sleep(TIMEOUT_S - 1)
    cluster.shared.heal("1")
    await asyncio.sleep(2 * TIMEOUT_S)
    assert process.registered == [registered]
    entry = await cluster.entry()
    assert entry is not None
    assert (entry.created, entry.version) == (registered.epoch, 0)
    await process.background.stop()


@in_virtual_time
async def test_new_addresses_are_written_under_the_same_epoch_and_kept_by_later_sessions() -> None:
    cluster = await Cluster().opened()
    process = await cluster.process()
    first = await process.registration.register(broker(9092))
    second = await process.registration.register(broker(9093))
    await settled()
    assert process.registered == [first, second]
    assert (second.epoch, second.endpoints["PLAINTEXT"].port) == (first.epoch, 9093)
    cluster.shared.expire("1")
    await settled()
    entry = await cluster.entry()
    assert entry is not None
    assert znodes.parse_broker(1, entry.data, entry.created) == process.registered[-1]
    assert process.registered[-1].endpoints == second.endpoints
    assert len(process.registered) == 3
    await process.background.stop()


@in_virtual_time
async def test_addresses_that_change_during_a_cut_are_written_after_it() -> None:
    cluster = await Cluster().opened()
    process = await cluster.process()
    await process.registration.register(broker(9092))
    for seconds in (1, TIMEOUT_S + 1):
        cluster.shared.cut("1")
        asyncio.get_running_loop().call_later(seconds, cluster.shared.heal, "1")
        port = 9093 + int(seconds)
        registered = await process.registration.register(broker(port))
        await settled()
        entry = await cluster.entry()
        assert entry is not None
        assert znodes.parse_broker(1, entry.data, entry.created) == registered == process.registered[-1]
        assert registered.endpoints["PLAINTEXT"].port == port
    await process.background.stop()


@in_virtual_time
async def test_an_entry_that_somebody_deleted_comes_back() -> None:
    cluster = await Cluster().opened()
    process = await cluster.process()
    await process.registration.register(broker())
    for count in (2, 3):
        await cluster.observer.delete(PATH)
        await settled()
        entry = await cluster.entry()
        assert entry is not None
        assert len(process.epochs) == count
        assert process.epochs[-1] == entry.created
    await process.background.stop()


@in_virtual_time
async def test_a_registration_that_the_store_refuses_is_tried_again_until_it_does_not() -> None:
    cluster = await Cluster().opened()
    process = await cluster.process()
    await process.registration.register(broker())
    await cluster.observer.multi([Delete(PATH), Delete(znodes.BROKER_IDS)])
    await asyncio.sleep(10 * TIMEOUT_S)
    assert len(process.epochs) == 1
    await cluster.observer.create(znodes.BROKER_IDS)
    await asyncio.sleep(TIMEOUT_S)
    entry = await cluster.entry()
    assert entry is not None
    assert len(process.epochs) == 2
    assert process.epochs[-1] == entry.created
    await process.background.stop()


@in_virtual_time
async def test_a_broker_is_not_registered_between_two_sessions() -> None:
    cluster = await Cluster().opened()
    process, other = await cluster.process(), await cluster.process("other")
    await process.registration.register(broker())
    await process.registration.registered()
    cluster.shared.cut("1")
    await other.registration.register(broker(9093))
    await process.registration.registered()  # there is no verdict yet
    cluster.shared.heal("1")
    await settled()
    waiting = asyncio.ensure_future(process.registration.registered())
    await asyncio.sleep(TIMEOUT_S)
    assert not waiting.done()
    other.registration.stop()
    await other.store.close()
    await waiting
    assert len(process.epochs) == 2
    await process.background.stop()
    await other.background.stop()


@in_virtual_time
async def test_a_broker_whose_id_was_taken_meanwhile_registers_when_the_other_has_ended() -> None:
    cluster = await Cluster().opened()
    process, other = await cluster.process(), await cluster.process("other")
    await process.registration.register(broker())
    cluster.shared.cut("1")
    theirs = await other.registration.register(broker(9093))
    cluster.shared.heal("1")
    await asyncio.sleep(10 * TIMEOUT_S)
    entry = await cluster.entry()
    assert entry is not None
    assert entry.created == theirs.epoch
    other.registration.stop()
    await other.store.close()
    await settled()
    entry = await cluster.entry()
    assert entry is not None
    assert (entry.owner, entry.created) == (process.store.session_id, process.epochs[-1])
    await process.background.stop()
    await other.background.stop()


@in_virtual_time
async def test_a_registration_that_was_stopped_does_not_come_back() -> None:
    cluster = await Cluster().opened()
    process = await cluster.process()
    await process.registration.register(broker())
    process.registration.stop()
    await cluster.observer.delete(PATH)
    cluster.shared.expire("1")
    await settled()
    assert await cluster.entry() is None
    await process.store.close()
    await process.background.stop()


@pytest.mark.parametrize("seed", range(40))
def test_lost_calls_lost_answers_and_lost_sessions_end_in_one_registration_of_the_living_session(seed: int) -> None:
    async def test() -> None:
        source = random.Random(seed)
        cluster = await Cluster(lambda name: 0.0 if name == "observer" else source.uniform(0, 0.2)).opened()
        process = await cluster.process()
        if source.random() < 0.5:
            await process.registration.register(broker())
            await process.background.stop()
            process = await cluster.process()

        async def disturb() -> None:
            for _ in range(source.randint(1, 6)):
                await asyncio.sleep(source.uniform(0, 0.5))
                cluster.shared.cut("1", lost_answers=source)
                await asyncio.sleep(source.choice([source.uniform(0, 1), source.uniform(TIMEOUT_S, 2 * TIMEOUT_S)]))
                if source.random() < 0.3:
                    cluster.shared.expire("1")
                cluster.shared.heal("1")

        disturbing = asyncio.ensure_future(disturb())
        await process.registration.register(broker())
        await disturbing
        await asyncio.sleep(10 * TIMEOUT_S)
        entry = await cluster.entry()
        assert entry is not None
        assert entry.owner == process.store.session_id
        assert entry.created == process.registration.broker_epoch() == process.epochs[-1]
        assert process.epochs == sorted(set(process.epochs))
        await process.background.stop()

    run_in_virtual_time(test())


async def test_a_store_that_is_gone_is_an_error() -> None:
    process = Process((await Cluster().opened()).shared.session("1"))
    await process.store.open()
    await process.store.close()
    with pytest.raises(Exception, match="unavailable") as caught:
        await process.registration.register(broker())
    assert not isinstance(caught.value, ConnectionLost)


async def test_a_node_that_has_the_store_to_itself_registers_at_once_after_a_crash() -> None:
    files, epochs = store_disk(), []
    for _ in range(3):
        store = EmbeddedMetadataStore(DIRECTORY, files)
        await store.open()
        if await store.exists("/brokers") is None:
            await store.multi([Create("/brokers"), Create(znodes.BROKER_IDS)])
        process = Process(store)
        epochs.append((await process.registration.register(broker())).epoch)
        await process.background.stop()
        files = files.crash()
    assert epochs == sorted(set(epochs))
