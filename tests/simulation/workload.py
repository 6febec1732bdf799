"""The clients of a simulated cluster, and what they do all the time.

    orders        the topic of idempotent and plain producers
    payments      the topic of transactional producers, which also commit offsets of the group `copies`
    clicks        the topic of a producer with acks=1. Its leaders may be elected uncleanly, so its records may be lost:
                  by its settings, or when operators ask for it
    parcels       a topic of idempotent producers, too; an administrator moves its replicas (administration.py)
    group `g`     members that read orders, join and leave, and are stopped now and then for longer than their session
    balances      a compacted topic of an idempotent producer, with a few keys
    readings      a topic whose records are deleted (retention.py)
    rivals        transactional producers under one id: the next one begins while the one before is at work
    stragglers    transactional producers that write where and when they may not
    newcomers     idempotent producers that begin, and do no more
    group `s`     static members that read payments. The next of an instance begins while the one before is at work
    strays        requests to the group for unknown members and in generations that do not exist
    deserters     begin to join the group, and do not go on
    one-offs      transactional producers that run one transaction, and whose ids rest until they expire
    passing       members that are alone in their groups, whose offsets expire
    expulsions    static members are removed by their instance ids
    doomed topics topics that are deleted while groups and transactions use them
    brief-offsets a client whose commits expire
    held-offsets  a client whose commits do not expire while a transaction has new ones
    keen, matching, migrants
                  groups of KIP-848, and one whose members change their protocol (consumer_groups.py)
    guests        clients whose access changes, and who changes it (guests.py)

Every client is a node with a host of its own: it can be cut off from a broker as any other host.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Protocol

from odradek.protocol.topic_partition import TopicPartition
from tests.simulation.access import ACCESS_CLIENTS, ADDRESSES, GUEST, KEEPER, VISITOR, Access
from tests.simulation.administration import (
    BRIEF,
    PARCELS,
    PARCELS_REPLICAS,
    PARCELS_SETTINGS,
    Administrator,
    Office,
    Pauses,
    ReplicaMover,
    TopicKeeper,
)
from tests.simulation.brief_offsets import BRIEF_GROUP, BriefOffsets
from tests.simulation.client.acls import give_rights
from tests.simulation.client.admin import Admin
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.consumer import Consumer
from tests.simulation.client.consumer_member import ConsumerMember
from tests.simulation.client.late_producer import LateProducer
from tests.simulation.client.late_proposals import LateProposals
from tests.simulation.client.member import Member, committed_offsets
from tests.simulation.client.newer_transactions import NewerLateProducer, NewerProducer
from tests.simulation.client.offsets_producer import OffsetsProducer
from tests.simulation.client.producer import Producer
from tests.simulation.client.store import StoreClient
from tests.simulation.client.stray_broker import StrayBroker
from tests.simulation.client.topics import TopicAdmin
from tests.simulation.client.transactions import TransactionalProducer
from tests.simulation.compaction_invariants import key_of
from tests.simulation.consumer_group_invariants import unsettled
from tests.simulation.consumer_groups import (
    CONSUMER_GROUPS,
    DYNAMIC,
    GROUP_HOSTS,
    KEEN,
    MATCHERS,
    MATCHING,
    MIGRANT_HOSTS,
    MIGRANTS,
    STATIC,
    DynamicMembers,
    Era,
    Host,
    MatchingMembers,
    MigratingMembers,
    StaticMembers,
    Surroundings,
)
from tests.simulation.deserters import Deserters
from tests.simulation.doomed_topics import DOOMED, DOOMED_GROUP, DoomedProducer, DoomedTopics
from tests.simulation.expulsions import Expulsions
from tests.simulation.feature_changes import FEATURE_KEEPER, FeatureKeeper
from tests.simulation.final_state import Unread
from tests.simulation.guests import AccessKeeper, Guest, Visitor
from tests.simulation.held_offsets import HELD_GROUP, HELD_TIMEOUT_MS, HOLDER, HeldOffsets
from tests.simulation.history import Outcome, Request
from tests.simulation.intruders import INTRUDERS, Intruders, Targets
from tests.simulation.loop import Node
from tests.simulation.memberships import Memberships, shard_of, writing_shard_of
from tests.simulation.newcomers import Newcomers
from tests.simulation.one_offs import ONE_OFF_IDS, ONE_OFFS_GROUP, OneOffs
from tests.simulation.passing_members import PASSING_GROUPS, PassingMembers
from tests.simulation.retention import READINGS, READINGS_PARTITIONS, RecordDeleter, readings_settings
from tests.simulation.rivals import RIVALS, RIVALS_GROUP, Rivals
from tests.simulation.security import ADMINISTRATORS, BROKERS, Security, rights
from tests.simulation.segments import LARGEST_BATCH_FACTOR
from tests.simulation.store_links import SESSION_TIMEOUT_MS, SETTINGS, StoreLinks
from tests.simulation.store_trouble import StoreTrouble
from tests.simulation.stragglers import NEWER_STRAGGLERS, STRAGGLERS, NewerStragglers, OlderStragglers
from tests.simulation.stray_consumers import StrayConsumers
from tests.simulation.strays import STRAYS, Strays
from tests.simulation.upkeep import DiskMover, SettingsKeeper

if TYPE_CHECKING:
    from tests.simulation.world import World

ORDERS, PAYMENTS, CLICKS, BALANCES = "orders", "payments", "clicks", "balances"
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.05"}
BALANCES_PARTITIONS = 2
CLICKS_SETTINGS = {"min.insync.replicas": "1"}
UNCLEAN = {"unclean.leader.election.enable": "true"}
CLICKS_PARTITIONS, CLICKS_REPLICAS = 3, 2
GROUP, STATICS, COPIES = "g", "s", "copies"
SEND_EVERY_S = 0.12
TRANSACT_EVERY_S = 0.25
STRAY_CONSUMERS = "stray-consumers"
LATE_LEADER, STRAY_BROKER = "late-leader", "stray-broker"
STORE_CLIENTS = ("store-client-1", "store-client-2")
MEMBER_STOPS_EVERY_S, MEMBER_IS_STOPPED_S = (6.0, 14.0), (4.5, 6.5)
STATIC_SESSION_MS, STATIC_REBALANCE_MS = 8000, 2000
"""A static member that stands still is absent from a rebalance, and stays a member."""
STATIC_MEMBER_LASTS_S, STATIC_MEMBERS_OVERLAP_S = (3.0, 8.0), (0.5, 3.0)
RECORDS_A_SECOND, REQUESTS_A_SECOND = 100.0, 20.5
"""What the producers aim at, of what is acknowledged. They make up for the time in which nobody can write."""
CATCH_UP_S = 2.0
"""Producers that are so far behind send twice as often."""
MOST_WAITING = 3
"""How many batches of a producer may wait in each partition: one without a leader leaves room for the others."""
ENOUGH_TIME_S = 40.0


class Client(Protocol):
    """`run` returns soon after `is_ending` was set."""

    is_ending: bool

    async def run(self) -> None:
        """Does what it does until the end."""


class Workload:
    """`hosts`: the clients' names, known before anything runs."""

    hosts = (
        "admin",
        "idempotent-1",
        "idempotent-2",
        "idempotent-3",
        "plain-1",
        "leader-1",
        "clicks-1",
        "keyed-1",
        "readings-1",
        "transactional-1",
        "transactional-2",
        "rivals",
        "stragglers",
        "newcomers",
        "static-1",
        "static-2",
        "strays",
        "brief-offsets",
        "deserters",
        "expulsions",
        "doomed-topics",
        "one-offs",
        "passing-members",
        "held-offsets",
        "newer-stragglers",
        "transactional-3",
        "reader-1",
        "reader-2",
        "readings-reader",
        "member-1",
        "member-2",
        "member-3",
        "topic-keeper",
        "replica-mover",
        "settings-keeper",
        "disk-mover",
        "record-deleter",
        *GROUP_HOSTS,
        STRAY_CONSUMERS,
        FEATURE_KEEPER,
        *STORE_CLIENTS,
        LATE_LEADER,
        STRAY_BROKER,
    )

    def __init__(self, world: World, *, partitions: int, payments: int, parcels: int, replicas: int) -> None:
        self.partitions = [TopicPartition(ORDERS, number) for number in range(partitions)]
        self.payments = [TopicPartition(PAYMENTS, number) for number in range(payments)]
        self.clicks = [TopicPartition(CLICKS, number) for number in range(CLICKS_PARTITIONS)]
        self.parcels = [TopicPartition(PARCELS, number) for number in range(parcels)]
        self.balances = [TopicPartition(BALANCES, number) for number in range(BALANCES_PARTITIONS)]
        self.readings = [TopicPartition(READINGS, number) for number in range(READINGS_PARTITIONS)]
        self.producers: list[Producer] = []
        self.consumers: list[Consumer] = []
        self.disk_mover: DiskMover | None = None
        self.transactional_ids = [
            RIVALS,
            STRAGGLERS,
            DOOMED,
            *ONE_OFF_IDS,
            STRAYS,
            HOLDER,
            NEWER_STRAGGLERS,
            *map(_transactional_id, ("transactional-1", "transactional-2", "transactional-3")),
        ]
        self._transactions = 0
        self._rivals: Rivals | None = None
        self.replica_mover: ReplicaMover | None = None
        self._records_under_way = 0
        self._world = world
        self._replicas = replicas
        self._is_ending = False
        self._ending: asyncio.Future[None] = world.loop.create_future()
        self._applications: list[asyncio.Task[None]] = []
        self._clients: list[Client] = []
        self._members: dict[str, Node] = {}
        self._belonging: dict[str, Member] = {}
        self._group_hosts: dict[str, list[Host]] = {}
        self.memberships = {
            group: Memberships(
                world.history, group, lambda: world.loop.now_us, partial(shard_of, world.machines, group)
            )
            for group in CONSUMER_GROUPS
        }
        for number, name in enumerate(self.hosts, 1):
            world.network.add_host(name, f"10.0.1.{number}")
        if world.security is not None:
            for number, name in enumerate(INTRUDERS, 1):
                world.network.add_host(name, f"10.0.3.{number}")
        for name in () if world.access is None else ACCESS_CLIENTS:
            world.network.add_host(name, ADDRESSES[name])

    # --- beginning and end --------------------------------------------------------------------------------------

    async def create_topics(self) -> None:
        """Creates the topics, before there are faults."""
        admin = Admin(self._cluster("admin"), self._world.history)
        node = self._node("admin")

        async def create() -> None:
            if self._world.security is not None:
                await self._give_rights()
            await admin.create_topic(ORDERS, len(self.partitions), self._replicas, self._world.topic_settings)
            await admin.create_topic(PAYMENTS, len(self.payments), self._replicas, self._world.topic_settings)
            unclean = {} if self._world.elects_by_hand else UNCLEAN
            replicas = min(self._replicas, CLICKS_REPLICAS)
            clicks = CLICKS_SETTINGS | unclean | self._world.unusual.clicks
            await admin.create_topic(CLICKS, len(self.clicks), replicas, clicks)
            compacted = COMPACTED | self._world.topic_settings | self._world.unusual.balances
            await admin.create_topic(BALANCES, len(self.balances), self._replicas, compacted)
            readings = readings_settings(self._random("retention")) | self._world.topic_settings
            await admin.create_topic(READINGS, len(self.readings), self._replicas, readings)
            if self.parcels:
                await admin.create_topic(PARCELS, len(self.parcels), PARCELS_REPLICAS, PARCELS_SETTINGS)

        await self._start(node, create())

    async def _give_rights(self) -> None:
        world = self._world
        login = world.login("admin", user=BROKERS)
        cluster = Cluster("admin", world.bootstrap, world.random("cluster of who gives rights"), login)
        acls = rights(
            topics=[ORDERS, PAYMENTS, CLICKS, BALANCES, PARCELS, READINGS],
            changing=[ORDERS, PAYMENTS],
            shrinking=[READINGS, CLICKS],
            brief=BRIEF,
            groups=[
                GROUP,
                STATICS,
                COPIES,
                BRIEF_GROUP,
                DOOMED_GROUP,
                RIVALS_GROUP,
                HELD_GROUP,
                ONE_OFFS_GROUP,
                *PASSING_GROUPS,
                *CONSUMER_GROUPS,
            ],
            transactional_ids=self.transactional_ids,
        )
        await give_rights(cluster, world.bootstrap, acls)

    def start(self) -> None:
        """Starts all clients."""
        of_all = [*self.partitions, *self.parcels]
        self._start_producer("idempotent-1", of_all, most_batches=4)
        self._start_producer("idempotent-2", of_all)
        self._start_producer("idempotent-3", of_all)
        self._start_producer("keyed-1", self.balances, key_of=key_of, compression=self._world.unusual.codec)
        self._start_producer("readings-1", self.readings, key_of=str.encode)
        self._start_producer("plain-1", self.partitions, is_idempotent=False, max_in_flight=1)
        self._start_producer("leader-1", self.partitions, is_idempotent=False, max_in_flight=1, acks=1)
        self._start_producer("clicks-1", self.clicks, is_idempotent=False, max_in_flight=1, acks=1, most_batches=3)
        for name in ("transactional-1", "transactional-2"):
            self._start_transactions(name, TransactionalProducer)
        self._start_transactions("transactional-3", NewerProducer)
        self._start_rivals("rivals")
        self._start_trespassers()
        everywhere = [*self.partitions, *self.payments, *self.parcels, *self.balances]
        self._start_consumer("reader-1", everywhere, is_committed=False)
        self._start_consumer("reader-2", everywhere, is_committed=True)
        late = self._start_consumer("readings-reader", self.readings, is_committed=False)
        self._applications.append(self._world.loop.create_task(self._stop_now_and_then([late], "late readers")))
        for name in ("member-1", "member-2", "member-3"):
            self._start_member(name)
        statics = {name: self._node(name) for name in ("static-1", "static-2")}
        for name, node in statics.items():
            self._applications.append(self._start(node, self._replace_members(name, self._random(name))))
        self._start_client("expulsions", self._expulsions(statics))
        members = list(self._members.values())
        self._applications.append(self._world.loop.create_task(self._stop_now_and_then(members, "stopped members")))
        self._start_consumer_groups()
        self._start_administrators()
        if self._world.store_links is not None:
            self._start_store_clients(self._world.store_links)
        if self._world.security is not None:
            self._start_intruders(self._world.security)
        if self._world.access is not None:
            self._start_guests(self._world.access)

    def _start_consumer_groups(self) -> None:
        around = Surroundings(self._world.history, self._cluster, self._random, self.memberships.__getitem__)
        era = Era(self._random("era of the migrants"), self._ending)
        self._applications.append(self._world.loop.create_task(era.run()))
        self._clients.append(era)
        clients: dict[str, Host] = {
            **{name: DynamicMembers(around, self._ending, name=name, topic=ORDERS) for name in DYNAMIC},
            **{name: StaticMembers(around, self._ending, name=name, topic=ORDERS) for name in STATIC},
            **{name: MatchingMembers(around, self._ending, name=name, topics=[PAYMENTS, CLICKS]) for name in MATCHERS},
            **{
                name: MigratingMembers(around, self._ending, name=name, topic=ORDERS, era=era) for name in MIGRANT_HOSTS
            },
        }
        self._group_hosts = {
            KEEN: [clients[name] for name in (*DYNAMIC, *STATIC)],
            MATCHING: [clients[name] for name in MATCHERS],
            MIGRANTS: [clients[name] for name in MIGRANT_HOSTS],
        }
        name = STRAY_CONSUMERS
        strays = StrayConsumers(
            self._cluster(name), self._world.history, self._random(name), self._keen_members, name=name, group=KEEN
        )
        self._start_client(name, strays)
        nodes = [self._start_client(name, client) for name, client in clients.items()]
        self._applications.append(self._world.loop.create_task(self._stop_now_and_then(nodes, "stopped consumers")))

    def _keen_members(self) -> list[ConsumerMember]:
        return [host.current for host in self._group_hosts[KEEN] if isinstance(host.current, ConsumerMember)]

    def _start_guests(self, access: Access) -> None:
        world, source = self._world, self._random(KEEPER)
        login = world.login(KEEPER, user=BROKERS)
        keeper = AccessKeeper(
            Cluster(KEEPER, world.bootstrap, self._random(f"cluster of {KEEPER}"), login),
            world.history,
            source,
            Pauses(source, world.fault_coming),
            replicas=self._replicas,
            configs=world.topic_settings,
        )
        brokers = {broker_id: machine.address for broker_id, machine in world.machines.items()}
        clients: dict[str, Client] = {
            KEEPER: keeper,
            GUEST: Guest(world.history, self._random(GUEST), brokers=brokers, is_open=access.is_open),
            VISITOR: Visitor(world.history, self._random(VISITOR), brokers=brokers, passwords=keeper.passwords),
        }
        for name, client in clients.items():
            self._start_client(name, client)

    def _start_intruders(self, security: Security) -> None:
        targets = Targets(self.partitions, GROUP, RIVALS, list(self._world.machines))
        world = self._world
        intruders = Intruders(
            world.history,
            self._random,
            security,
            bootstrap=world.bootstrap,
            targets=targets,
            ending=self._ending,
        )
        for name, running in intruders.run().items():
            self._applications.append(self._start(self._node(name), running))

    def _start_store_clients(self, links: StoreLinks) -> None:
        for name in STORE_CLIENTS:
            client = StoreClient(
                self._world.history,
                self._random(name),
                name=name,
                connect=SETTINGS["zookeeper.connect"],
                session_timeout_ms=SESSION_TIMEOUT_MS,
            )
            self._start_client(name, client)
        cluster = Cluster(
            LATE_LEADER, self._world.bootstrap, self._random(LATE_LEADER), self._world.login(LATE_LEADER, user=BROKERS)
        )
        late = LateProposals(
            cluster, self._world.history, self._random("late proposals"), links.proposable, name=LATE_LEADER
        )
        self._start_client(LATE_LEADER, late)
        self._start_stray_broker(links)
        trouble = StoreTrouble(links, self._random("trouble of the store"), STORE_CLIENTS)
        self._applications.append(self._world.loop.create_task(trouble.run(self._ending)))

    def _start_stray_broker(self, links: StoreLinks) -> None:
        world, name = self._world, STRAY_BROKER
        cluster = Cluster(name, world.bootstrap, self._random(f"cluster of {name}"), world.login(name, user=BROKERS))
        stray = StrayBroker(cluster, world.history, self._random(name), links.proposable, name=name)
        self._start_client(name, stray)

    async def end(self) -> None:
        """Lets every client finish what it has begun, when all faults are over. Returns when all have, or too late."""
        self._is_ending = True
        self._ending.set_result(None)
        for client in self._clients:
            client.is_ending = True
        ended, _ = await asyncio.wait(self._applications, timeout=ENOUGH_TIME_S)
        for application in ended:
            application.result()
        ends = self._world.ends_of_logs()
        for _ in range(int(ENOUGH_TIME_S / 0.1)):
            if not self.unread(ends):
                break
            await asyncio.sleep(0.1)
        node = self._node("admin", number=2)
        await self._start(node, self._ask_for_offsets())

    def unsettled(self) -> list[str]:
        """What is not as it must be in the groups of `consumer_groups.py`, whose members stay until the end."""
        return [
            wrong
            for group, hosts in self._group_hosts.items()
            for wrong in unsettled(
                self._world.machines, self.memberships[group], [each.current for each in hosts if each.current]
            )
        ]

    def unread(self, ends: Mapping[TopicPartition, int]) -> list[Unread]:
        """What consumers have not read."""
        return [
            Unread(consumer.name, partition, position.offset, ends[partition])
            for consumer in self.consumers
            for partition, position in consumer.positions.items()
            if position.offset < ends.get(partition, 0)
        ]

    async def _ask_for_offsets(self) -> None:
        cluster = self._cluster("admin")
        for group, partitions in (
            (GROUP, self.partitions),
            (COPIES, self.partitions),
            (KEEN, self.partitions),
            (MIGRANTS, self.partitions),
        ):
            asked = self._world.history.begin(Request(process="admin", what=f"ask for the last offsets of {group}"))
            for _ in range(100):
                if await committed_offsets(cluster, self._world.history, "admin", group, partitions) is not None:
                    self._world.history.end(asked, Outcome.OK)
                    break
                await cluster.back_off()

    # --- clients ------------------------------------------------------------------------------------------------

    def _start_producer(self, name: str, partitions: Sequence[TopicPartition], **options: Any) -> None:
        producer = Producer(self._cluster(name), self._world.history, name=name, **options)
        self.producers.append(producer)
        node = self._node(name)
        self._start(node, producer.run())
        application = self._produce(producer, partitions, self._random(name))
        self._applications.append(self._start(node, application))

    async def _produce(self, producer: Producer, partitions: Sequence[TopicPartition], source: Random) -> None:
        texts = _texts(producer.name)
        sending: dict[asyncio.Task[Outcome], TopicPartition] = {}
        while not self._is_ending:
            await asyncio.sleep(source.expovariate(1 / self._interval_s()))
            waiting = Counter(sending.values())
            candidates = [partition for partition in partitions if waiting[partition] < MOST_WAITING]
            if not candidates:
                await asyncio.wait(list(sending), return_when=asyncio.FIRST_COMPLETED)
                continue
            partition = source.choice(candidates)
            batch = [next(texts) for _ in range(source.randint(1, 8) * self._batch_factor())]
            task = asyncio.get_running_loop().create_task(producer.send(partition, batch))
            sending[task] = partition
            self._records_under_way += len(batch)
            task.add_done_callback(partial(self._sent, sending, len(batch)))
        if sending:
            await asyncio.wait(list(sending))

    def _sent(
        self, sending: dict[asyncio.Task[Outcome], TopicPartition], records: int, task: asyncio.Task[Outcome]
    ) -> None:
        sending.pop(task)
        self._records_under_way -= records

    def _interval_s(self) -> float:
        """Long ones while there is plenty: a run is to have work at all times, but not to take long."""
        behind_s = self._world.loop.time() - self.requests / REQUESTS_A_SECOND
        if behind_s < 0 and self._records_behind() < 0:
            return 4 * SEND_EVERY_S
        return SEND_EVERY_S / (1 + max(behind_s, 0.0) / CATCH_UP_S)

    def _batch_factor(self) -> int:
        """Larger batches, if those under way are not enough."""
        missing = self._records_behind() - self._records_under_way
        return min(1 + max(int(missing / (CATCH_UP_S * RECORDS_A_SECOND)), 0), LARGEST_BATCH_FACTOR)

    def _records_behind(self) -> float:
        return RECORDS_A_SECOND * self._world.loop.time() - self._world.acknowledged

    @property
    def requests(self) -> int:
        """How many Produce requests had a batch acknowledged."""
        return sum(producer.requests for producer in self.producers)

    @property
    def transactions(self) -> int:
        """How many transactions have ended."""
        return self._transactions + (0 if self._rivals is None else self._rivals.transactions)

    def _start_transactions(self, name: str, kind: type[TransactionalProducer]) -> None:
        producer = kind(self._cluster(name), self._world.history, name=name, transactional_id=_transactional_id(name))
        self.producers.append(producer)
        node = self._node(name)
        self._start(node, producer.run())
        self._applications.append(self._start(node, self._transact(producer, self._random(name))))

    async def _transact(self, producer: TransactionalProducer, source: Random) -> None:
        texts = _texts(producer.name)
        share = self.partitions[self.transactions_share(producer.name) :: 3]
        offsets = dict.fromkeys(share, 0)
        while not self._is_ending:
            await asyncio.sleep(source.expovariate(1 / TRANSACT_EVERY_S))
            chosen = source.sample(self.payments, source.randint(1, min(3, len(self.payments))))
            batches = {partition: [next(texts) for _ in range(source.randint(1, 4))] for partition in sorted(chosen)}
            further: dict[TopicPartition, int] = {}
            if source.random() < 0.5:
                partition = source.choice(share)
                offsets[partition] += 1
                further[partition] = offsets[partition]
            await producer.transact(batches, commits=source.random() < 0.75, group=COPIES, offsets=further)
            self._transactions += 1

    def _start_rivals(self, name: str) -> None:
        kinds = self._random("kinds of the rivals")

        def new_producer(name: str) -> TransactionalProducer:
            kind = kinds.choice([TransactionalProducer, NewerProducer])
            return kind(self._cluster(name), self._world.history, name=name, transactional_id=RIVALS)

        rivals = self._rivals = Rivals(
            new_producer, _texts, self._random(name), self._ending, name=name, partitions=self.payments
        )
        self._start_client(name, rivals)

    def _start_trespassers(self) -> None:
        history, cluster, source = self._world.history, self._cluster, self._random
        late = cluster("stragglers")

        def new_producer(name: str, timeout_ms: int) -> LateProducer:
            return LateProducer(late, history, name=name, transactional_id=STRAGGLERS, timeout_ms=timeout_ms)

        def members() -> list[tuple[str, int]]:
            return [member.identity for member in self._belonging.values() if member.identity[0]]

        trespassers: dict[str, Client] = {
            "stragglers": OlderStragglers(
                new_producer,
                _texts,
                source("stragglers"),
                name="stragglers",
                partitions=self.payments,
                group=COPIES,
                offset=self.partitions[0],
            ),
            "newcomers": Newcomers(cluster("newcomers"), history, source("newcomers"), name="newcomers"),
            "strays": Strays(
                cluster("strays"),
                history,
                source("strays"),
                members,
                OffsetsProducer(cluster("strays"), history, name="strays", transactional_id=STRAYS),
                name="strays",
                group=GROUP,
                unused=self.readings[1],
            ),
            "brief-offsets": BriefOffsets(
                cluster("brief-offsets"),
                history,
                source("brief-offsets"),
                partial(writing_shard_of, self._world.machines, BRIEF_GROUP),
                name="brief-offsets",
                partition=self.partitions[0],
            ),
        }
        trespassers["deserters"] = Deserters(
            cluster("deserters"),
            source("deserters"),
            lambda: [self._world.network.reset("deserters", name) for name in self._brokers],
            group=GROUP,
            topic=ORDERS,
            unused=self.readings[0],
        )
        trespassers["doomed-topics"] = self._doomed_topics()
        trespassers["passing-members"] = PassingMembers(
            cluster("passing-members"),
            history,
            source("passing-members"),
            name="passing-members",
            kept=self.payments[0],
            other=self.partitions[0],
        )
        trespassers["newer-stragglers"] = NewerStragglers(
            lambda name, timeout_ms: NewerLateProducer(
                cluster("newer-stragglers"),
                history,
                name=name,
                transactional_id=NEWER_STRAGGLERS,
                timeout_ms=timeout_ms,
            ),
            _texts,
            source("newer-stragglers"),
            name="newer-stragglers",
            partitions=self.payments,
            group=COPIES,
            offset=self.partitions[0],
        )
        trespassers["held-offsets"] = HeldOffsets(
            cluster("held-offsets"),
            history,
            OffsetsProducer(
                cluster("held-offsets"),
                history,
                name="held-offsets",
                transactional_id=HOLDER,
                timeout_ms=HELD_TIMEOUT_MS,
            ),
            source("held-offsets"),
            held=self.payments[0],
            other=self.payments[1],
        )

        def new_one_off(name: str, transactional_id: str, timeout_ms: int) -> LateProducer:
            shared = cluster("one-offs")
            return LateProducer(shared, history, name=name, transactional_id=transactional_id, timeout_ms=timeout_ms)

        trespassers["one-offs"] = OneOffs(
            new_one_off, _texts, source("one-offs"), name="one-offs", partitions=self.payments
        )
        for name, trespasser in trespassers.items():
            self._start_client(name, trespasser)

    @property
    def _brokers(self) -> list[str]:
        return [machine.name for machine in self._world.machines.values()]

    def _expulsions(self, members: Mapping[str, Node]) -> Expulsions:
        def pause() -> None:
            for node in members.values():
                self._world.loop.pause(node)

        def resume() -> None:
            for node in members.values():
                self._world.loop.resume(node)

        return Expulsions(
            self._cluster("expulsions"),
            self._random("expulsions"),
            pause,
            resume,
            group=STATICS,
            instances=list(members),
        )

    def _doomed_topics(self) -> DoomedTopics:
        name, world = "doomed-topics", self._world
        login = world.login(name, user=ADMINISTRATORS)
        admin = Cluster(name, world.bootstrap, world.random("cluster of who deletes doomed topics"), login)
        return DoomedTopics(
            self._cluster(name),
            TopicAdmin(admin, world.history, name=name),
            DoomedProducer(self._cluster(name), world.history, name=name, transactional_id=DOOMED),
            self._random(name),
            prefix=f"{BRIEF}doomed-",
            replicas=self._replicas,
        )

    def transactions_share(self, name: str) -> int:
        """Each transactional producer commits offsets of other partitions, so that they only grow."""
        return int(name.rsplit("-", 1)[1]) - 1

    def _start_consumer(self, name: str, partitions: Sequence[TopicPartition], *, is_committed: bool) -> Node:
        consumer = Consumer(self._cluster(name), self._world.history, name=name, is_committed=is_committed)
        self.consumers.append(consumer)
        consumer.assign(dict.fromkeys(partitions, 0))
        node = self._node(name)
        self._start(node, consumer.run())
        return node

    def _start_member(self, name: str) -> None:
        source = self._random(name)
        member = Member(self._cluster(name), self._world.history, source, name=name, group=GROUP, topic=ORDERS)
        node = self._members[name] = self._node(name)
        self._applications.append(self._start(node, self._belong(member, source)))

    async def _belong(self, member: Member, source: Random) -> None:
        while not self._is_ending:
            self._belonging[member.name] = member
            belonging = asyncio.get_running_loop().create_task(member.run())
            stays_s = source.uniform(6.0, 20.0)
            await asyncio.wait([self._ending], timeout=stays_s)
            member.leave()
            await belonging
            member = Member(member.cluster, self._world.history, source, name=member.name, group=GROUP, topic=ORDERS)

    async def _replace_members(self, name: str, source: Random) -> None:
        """Runs one static member of an instance after the other. They overlap for a while."""
        before: tuple[Member, asyncio.Task[None]] | None = None
        for number in count(1):
            own_name = f"{name}.{number}"
            member = Member(
                self._cluster(own_name),
                self._world.history,
                source,
                name=own_name,
                group=STATICS,
                topic=PAYMENTS,
                instance_id=name,
                session_timeout_ms=STATIC_SESSION_MS,
                rebalance_timeout_ms=STATIC_REBALANCE_MS,
            )
            running = asyncio.get_running_loop().create_task(member.run())
            await asyncio.wait([self._ending], timeout=source.uniform(*STATIC_MEMBERS_OVERLAP_S))
            if before is not None:
                before[0].leave()
                await before[1]
            await asyncio.wait([self._ending], timeout=source.uniform(*STATIC_MEMBER_LASTS_S))
            before = (member, running)
            if self._is_ending:
                break
        member.leave()
        await running

    async def _stop_now_and_then(self, nodes: Sequence[Node], name: str) -> None:
        """Stops one of them as SIGSTOP does: a member for longer than its session lasts, a reader until the records at
        its position have been deleted."""
        source = self._random(name)
        while True:
            await asyncio.wait([self._ending], timeout=source.uniform(*MEMBER_STOPS_EVERY_S))
            if self._ending.done():
                return
            node = source.choice(nodes)
            self._world.loop.pause(node)
            await asyncio.wait([self._ending], timeout=source.uniform(*MEMBER_IS_STOPPED_S))
            self._world.loop.resume(node)

    def _start_administrators(self) -> None:
        names = [
            "topic-keeper",
            "settings-keeper",
            "disk-mover",
            "record-deleter",
            *(["replica-mover"] if self.parcels else []),
            *([FEATURE_KEEPER] if self._world.unusual.changes_features else []),
        ]
        for name in names:
            source = self._random(name)
            pauses = Pauses(source, self._world.fault_coming)
            office = Office(name, self._cluster(name), self._world.history, source, pauses)
            self._start_client(name, self._administrator(office))

    def _administrator(self, office: Office) -> Administrator:
        name, brokers = office.name, list(self._world.machines)
        if name == "topic-keeper":
            return TopicKeeper(office, brokers=brokers)
        if name == "settings-keeper":
            topics = [ORDERS, PAYMENTS]
            return SettingsKeeper(office, topics=topics, brokers=brokers)
        if name == "disk-mover":
            movable = [*self.partitions, *self.payments, *self.balances, *self.readings, *self.clicks]
            self.disk_mover = DiskMover(office, partitions=movable, brokers=brokers)
            return self.disk_mover
        if name == FEATURE_KEEPER:
            return FeatureKeeper(office)
        if name == "record-deleter":
            return RecordDeleter(office, partitions=self.readings[:1])
        self.replica_mover = ReplicaMover(office, partitions=self.parcels, brokers=brokers)
        return self.replica_mover

    # --- nodes --------------------------------------------------------------------------------------------------

    def _start_client(self, name: str, client: Client) -> Node:
        self._clients.append(client)
        node = self._node(name)
        self._applications.append(self._start(node, client.run()))
        return node

    def _node(self, name: str, number: int = 1) -> Node:
        node = Node(name, number)
        self._world.network.started(node)
        return node

    def _start(self, node: Node, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return self._world.loop.run_as(node, self._world.loop.create_task, coroutine)

    def _random(self, name: str) -> Random:
        return self._world.random(name)

    def _cluster(self, name: str) -> Cluster:
        world = self._world
        return Cluster(name, world.bootstrap, world.random(f"cluster of {name}"), world.login(name))


def _transactional_id(name: str) -> str:
    return f"id of {name}"


def _texts(name: str) -> Iterator[str]:
    return (f"{name}:{number}" for number in count(1))
