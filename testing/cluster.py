"""A cluster of brokers inside the process, for tests: real brokers, sockets, logs and elections, on one event loop.

    async with in_process_cluster(brokers=3) as cluster:
        await cluster.create_topic("orders")
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
        ...
        leader = cluster.leader("orders", 0)
        cluster.kill(leader)
        await cluster.wait_for_isr("orders", 0, {1, 2, 3} - {leader})
        await cluster.start(leader)
        await cluster.wait_until_stable()

The brokers 1 to N are on free ports of 127.0.0.1, which they keep when they start again, and store their data below a
temporary directory, which is removed afterwards. The metadata store is in memory. Settings are given as to
`in_process_broker` and are the same for all brokers; in_process_cluster.py says which differ from a broker's own
defaults, and why.

What can be done to a broker:

    stop          it moves its leaderships, and stops as when it is asked to
    kill          as kill -9: nothing is written, its connections end, its session is left to expire
    pause         as SIGSTOP; its session expires after the session time-out. See node_loop.py for what differs
    cut           two brokers hear nothing of each other. See network.py
    cut_off       the same from all other brokers, and from the metadata store
    freeze_replication    as a follower, it receives nothing
    move_leader   it leads a partition; move_coordinator: it coordinates a group. See cluster_topics.py

With `time="virtual"` a test advances the time of all brokers (virtual_time/).

Each broker has an event loop of its own above the running one, so its coroutines run only with `cluster.run`.
Whatever is not a coroutine may be called, and everything may be read, at any time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import Any, TypeVar

from odradek.broker.logging.quiet_logs import LatestWarnings
from odradek.broker.metadata_store import znodes
from odradek.broker.metadata_store.shared.shared_store import SharedStore
from odradek.broker.metadata_store.tree import MetadataTree
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.testing.asking import BrokerOrCluster
from odradek.testing.calls import noted
from odradek.testing.client_settings import client_settings, property_text
from odradek.testing.cluster_topics import ClusterTopics
from odradek.testing.cluster_view import ENDED, BrokerStatus, Member
from odradek.testing.cluster_waits import SETTLED_WITHIN_S
from odradek.testing.faults import Faults
from odradek.testing.in_sync import warn_of_stuck
from odradek.testing.network import Network
from odradek.testing.node_loop import NodeLoop, node_loop
from odradek.testing.opening import ANOTHER_LOOP
from odradek.testing.right_calls import NamesTheRightCall
from odradek.testing.security import Security, add_acls
from odradek.testing.snapshots.of_clusters import take_cluster_snapshot
from odradek.testing.snapshots.snapshot import Snapshot
from odradek.testing.virtual_time.virtual_time import VirtualTime
from odradek.timer import Clock

T = TypeVar("T")
STORE = 0
"""The loop of the metadata store, where it has one of its own."""
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
CONNECTION_TIMEOUT_MS = 30_000
"""How long a broker that starts waits for the store, which is only ever slow because the machine is."""


@noted
class Cluster(BrokerOrCluster, NamesTheRightCall, ClusterTopics):
    """See the head of this file. Made by `in_process_cluster`."""

    def __init__(
        self,
        members: Sequence[Member],
        security: Security,
        *,
        virtual_time: VirtualTime | None,
        clock: Clock | None,
        random: Random | None,
        open_files: int,
        keeps_data: bool,
        warnings: LatestWarnings,
        faults: Faults,
        tree: MetadataTree | None,
    ) -> None:
        """`tree`: what the metadata store begins with, of a cluster that starts from a snapshot."""
        session_timeout_ms = BrokerConfig.single_node(members[0].settings).zookeeper_session_timeout_ms
        network = Network()
        self._below = asyncio.get_running_loop()
        self.virtual_time = virtual_time
        super().__init__(
            {member.broker_id: member for member in members},
            SharedStore(
                session_timeout_ms=session_timeout_ms,
                connection_timeout_ms=CONNECTION_TIMEOUT_MS,
                loop=asyncio.get_running_loop() if virtual_time is None else self._new_loop(STORE, network),
                tree=tree,
                before_elections=[] if tree is None else [znodes.broker_path(member.broker_id) for member in members],
            ),
            network,
        )
        self.security = security
        self.faults = faults
        self._clock = virtual_time or clock
        self.random = random
        self._open_files = open_files // len(members)
        self._keeps_data = keeps_data
        self.warnings = warnings
        self._one_at_a_time = asyncio.Lock()
        """Of snapshots."""

    # --- clients ------------------------------------------------------------------------------------------------

    def client_settings(self, client: str, user: str | None = None) -> dict[str, Any]:
        """See InProcessBroker; the settings name all brokers."""
        return client_settings(self.security, self.bootstrap, client, user)

    def client_properties(self, user: str | None = None) -> str:
        """See InProcessBroker."""
        return property_text(self.client_settings("java", user))

    # --- starting and stopping ----------------------------------------------------------------------------------

    async def start(self, broker_id: int) -> None:
        """Starts a broker that was stopped or killed, with its data. Returns when it serves clients. After a kill, its
        old session must expire first. Raises StartError.
        """
        self._expect_own_loop()
        member = self._expect(broker_id, *ENDED)
        if member.loop is not None:
            await member.loop.all_gone()
        session = self.store.session(member.name)
        if not member.is_cut_from_store:
            self.store.heal(member.name)
        loop = member.loop = self._new_loop(broker_id, self.network)
        member.broker = Broker(
            BrokerConfig.single_node(member.settings, environment=os.environ),
            clock=self._clock,
            random=None if self.random is None else Random(self.random.getrandbits(64)),  # nosec B311 # for tests
            new_metadata_store=lambda *_: session,
            connect=self.network.connect,
            open_files=self._open_files,
            files=self.faults.files(lambda: broker_id, is_temporary=not self._keeps_data),
            wrap_dispatch=self.faults.wrap,
        )
        member.status = BrokerStatus.STARTING
        try:
            await loop.run(member.broker.start())
        except BaseException:
            if member.loop is loop and not loop.has_ended:
                loop.end()
                member.broker.kill()
                member.status = BrokerStatus.STOPPED
            raise
        member.status = BrokerStatus.RUNNING

    def _new_loop(self, node_id: int, network: Network) -> NodeLoop:
        loop = node_loop(node_id, network, self.virtual_time)
        if self.virtual_time is not None:
            self.virtual_time.belongs_to(loop)
        return loop

    async def stop(self, broker_id: int) -> None:
        """Stops a broker, which hands its leaderships over before. Returns when it has stopped."""
        await self._stop(broker_id, hand_over=True)

    async def _stop(self, broker_id: int, *, hand_over: bool) -> None:
        self._expect_own_loop()
        member = self._expect(broker_id, BrokerStatus.RUNNING)
        assert member.broker is not None
        assert member.loop is not None
        member.status = BrokerStatus.STOPPING
        await member.loop.run(member.broker.stop(hand_over=hand_over))
        member.loop.end()
        member.status = BrokerStatus.STOPPED

    def kill(self, broker_id: int) -> None:
        """Ends a broker as kill -9 does, whatever it is doing. Its session with the store is left to expire."""
        member = self._expect(broker_id, *(status for status in BrokerStatus if status not in ENDED))
        assert member.broker is not None
        assert member.loop is not None
        member.status = BrokerStatus.KILLED
        self.store.cut(member.name)
        member.loop.end()
        member.broker.kill()

    async def restart(self, broker_id: int) -> None:
        """Stops a broker if it runs, and starts it."""
        if self.status(broker_id) is BrokerStatus.RUNNING:
            await self.stop(broker_id)
        await self.start(broker_id)

    def pause(self, broker_id: int) -> None:
        """Stops a broker as SIGSTOP does. If it lasts, its session with the store expires."""
        member = self._expect(broker_id, BrokerStatus.RUNNING)
        assert member.loop is not None
        member.status = BrokerStatus.PAUSED
        member.loop.pause()
        self.store.silence(member.name)

    def resume(self, broker_id: int) -> None:
        """Lets a paused broker go on, as SIGCONT does."""
        member = self._expect(broker_id, BrokerStatus.PAUSED)
        assert member.loop is not None
        member.status = BrokerStatus.RUNNING
        self.store.end_silence(member.name)
        member.loop.resume()

    async def run(self, broker_id: int, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine of a broker, as that broker, and returns its result. Raises NodeEnded if it ends before, and
        RuntimeError in a task of another loop.
        """
        loop = self.member(broker_id).loop
        assert loop is not None, f"broker {broker_id} was never started"
        if asyncio.get_running_loop() is not self._below:
            coroutine.close()
        self._expect_own_loop()
        return await loop.run(coroutine)

    def _expect_own_loop(self) -> None:
        """Raises RuntimeError in a task of another loop than the one below those of the brokers."""
        if asyncio.get_running_loop() is not self._below:
            raise RuntimeError(ANOTHER_LOOP)

    async def open(self) -> None:
        """Starts all brokers. Returns when they all know each other, and the ACLs."""
        await asyncio.gather(*map(self.start, self.members))
        await self.wait_until_stable()
        for broker_id in self.members:
            await add_acls(self.security, self.bootstrap_of(broker_id), self.random or SystemRandom())

    async def snapshot(self, path: str | Path | None = None, *, within: float = SETTLED_WITHIN_S) -> Snapshot:
        """Returns what all brokers have now, for clusters that start from it; of a cluster at rest, for which it waits
        `within` seconds. With a `path` the snapshot is kept there, in a new directory; otherwise it goes with the
        object. Raises SnapshotError; see docs/testing/snapshots.md.
        """
        self._expect_own_loop()
        async with self._one_at_a_time:
            return await take_cluster_snapshot(self, self.run, path, within)

    async def close(self) -> None:
        """Ends all brokers. If their data is kept, those that can stop do so, but nobody hands anything over."""
        can_stop = self.running if self._keeps_data else []
        for broker_id in self.members:
            self.heal(broker_id)
            self.thaw(broker_id)
            if broker_id not in can_stop and self.status(broker_id) not in ENDED:
                self.kill(broker_id)
        await asyncio.gather(*(self._stop(broker_id, hand_over=False) for broker_id in can_stop))
        for member in self.members.values():
            if member.loop is not None:
                await member.loop.all_gone()
            if member.status is BrokerStatus.KILLED:
                self.store.expire(member.name)
            member.reserved.close()

    # --- time ---------------------------------------------------------------------------------------------------

    def brokers_in_time(self) -> list[Broker]:
        """See TimeControls."""
        members = self.members.values()
        return [each.broker for each in members if each.broker is not None and each.status not in ENDED]

    def state_in_time(self) -> str:
        """See TimeControls."""
        return self.describe()

    # --- breaking the network -----------------------------------------------------------------------------------

    def cut(self, a: int, b: int) -> None:
        """Cuts two brokers off from each other. A warning says if producers with acks=all then wait until it heals."""
        self.network.cut(self.member(a).broker_id, self.member(b).broker_id)
        for leader in (a, b):
            warn_of_stuck(self, leader)

    def cut_from_store(self, broker_id: int, *, lost_answers: Random | None = None) -> None:
        """Cuts a broker off from the metadata store: its session expires if that lasts. With `lost_answers`, some of
        its changes are carried out all the same (see shared_store.py).
        """
        member = self.member(broker_id)
        member.is_cut_from_store = True
        if member.loop is not None:
            self.store.cut(member.name, lost_answers=lost_answers)

    def cut_off(self, broker_id: int) -> None:
        """Cuts a broker off from all others and from the metadata store. Clients still reach it."""
        self.cut_from_store(broker_id)
        for other in self.members:
            if other != broker_id:
                self.network.cut(broker_id, other)

    def heal(self, broker_id: int, other: int | None = None) -> None:
        """Ends all cuts of a broker, or the one between two brokers."""
        member = self.member(broker_id)
        for each in self.network.cuts_of(broker_id) if other is None else [self.member(other).broker_id]:
            self.network.heal(broker_id, each)
        if other is None and member.is_cut_from_store:
            member.is_cut_from_store = False
            if member.status is not BrokerStatus.KILLED:
                self.store.heal(member.name)

    def freeze_replication(self, broker_id: int) -> None:
        """The broker's fetchers receive nothing from now on; it serves clients and other brokers as before."""
        self.network.freeze(self.member(broker_id).broker_id)

    def thaw(self, broker_id: int) -> None:
        """Ends `freeze_replication`."""
        self.network.thaw(self.member(broker_id).broker_id)
