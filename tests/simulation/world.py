"""A simulated cluster, its clients and its faults, all from one seed; and one run of them to the end.

     0 %   brokers start, topics are created, clients start
    10 %   the first fault
    80 %   all faults are over
    84 %   clients finish what they have begun, consumers read to the end
    100 %  of `Scale.seconds`, or later: the cluster has converged, or never will. The history is judged

Every source of randomness is seeded by the seed and its own name: a fault more or less changes no other's numbers.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TextIO

from odradek.broker.server import Broker
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.protocol.wire_codes import ElectionType
from tests.simulation.access import ACCESS_CLIENTS, GUESTS, GUESTS_PORT, access_of
from tests.simulation.access_watch import access_in, access_known_to
from tests.simulation.administration import OPERATOR, PARCELS_REPLICAS
from tests.simulation.checker import check
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.login import Login
from tests.simulation.client.requests import elect_leaders
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.consumer_groups import SETTINGS as GROUP_SETTINGS
from tests.simulation.disk import ThreadTimes
from tests.simulation.examination import examine
from tests.simulation.faults import KINDS, Fault, schedule
from tests.simulation.feature_changes import FEATURE_KEEPER
from tests.simulation.final_state import FinalState
from tests.simulation.history import Commit, History, Operation, Outcome, Send, Wrong
from tests.simulation.intruders import INTRUDERS
from tests.simulation.loop import Node, simulated_loop
from tests.simulation.machine import PORT, Machine
from tests.simulation.missteps import Misstep
from tests.simulation.network import Network
from tests.simulation.newcomers import small_blocks
from tests.simulation.observer import Observer
from tests.simulation.security import (
    ADMINISTRATORS,
    CLIENTS,
    PLAINTEXT,
    PROTOCOL,
    Security,
    credentials_of,
    security_of,
)
from tests.simulation.segments import segments_of
from tests.simulation.store_judge import StoreJudge
from tests.simulation.store_links import SETTINGS, STORE_HOST, StoreLinks
from tests.simulation.trace import Trace
from tests.simulation.unexpected import UNEXPECTED, noted_in
from tests.simulation.unusual_settings import unusual_settings_of
from tests.simulation.upkeep_history import SettingChange
from tests.simulation.violation import Violation
from tests.simulation.workload import CLICKS, LATE_LEADER, STRAY_BROKER, Workload

FIRST_FAULT, LAST_FAULT, LAST_WORK = 0.1, 0.8, 0.9
LONGEST_CONVERGENCE_S = 60.0
QUIET_S = 2.0
HEALED_BY_TIME = {"replicas", "convergence", "topics", "reassignments", "answered", "quiet"} | {
    "settings",
    "directories",
    "removed",
    "compacted",
    "known",
    "settled",
}
"""Invariants that hold some time after the last fault. While they hold, nothing changes that could heal another one."""
INCURABLE_LOOKS = 3
"""A high watermark may follow its replicas a moment later, so one look does not decide."""
ARMED_S = 1.0
LONGEST_WARNING_S = 0.03
LONGEST_LAG_MS = 2000
"""A follower that a fault keeps away leaves the in-sync replicas while the fault lasts."""
IN_FLIGHT = (Send, Commit)
WHO_ADMINISTER = (
    "admin",
    "topic-keeper",
    "replica-mover",
    "settings-keeper",
    "disk-mover",
    "record-deleter",
    FEATURE_KEEPER,
    OPERATOR,
)
"""The clients that are administrators if there is security. The others are of the user CLIENTS."""


@dataclass(frozen=True)
class Scale:
    """How large a simulation is."""

    brokers: int = 1
    partitions: int = 10
    payments: int = 4
    parcels: int = 3
    faults: int = 30
    seconds: float = 60.0
    kinds: Collection[str] = tuple(KINDS)
    """The kinds of the faults."""
    ends_when_found: bool = False
    """Whether a run ends at the first thing that must not be, if it is judged when it happens: a `Wrong`."""


@dataclass
class Result:
    """What came of one seed."""

    seed: int
    digest: str
    events: int
    violations: list[Violation]
    history: History
    final: FinalState
    faults: Sequence[Fault]
    hits: int
    acknowledged_records: int
    produce_requests: int
    transactions: int
    records_read: int
    seconds: float
    failures: Sequence[dict[str, Any]] = field(default_factory=list)
    security: Security | None = None

    @property
    def has_passed(self) -> bool:
        """Whether nothing was violated, and nothing raised where nobody catches it."""
        return not self.violations and not self.failures


class World:
    """Create it, call `run`, and drop it."""

    def __init__(
        self, seed: int, *, scale: Scale = Scale(), faults: Sequence[Fault] | None = None, lines: TextIO | None = None
    ) -> None:
        """`faults`: these, instead of the ones drawn from the seed. `lines`: where the trace is written."""
        self.seed = seed
        self.scale = scale
        self.security = security_of(seed)
        self.segments = segments_of(seed)
        self.access = access_of(seed, self.security) if scale.brokers > 2 else None
        self.elects_by_hand = self.random("who elects uncleanly").random() < 0.5
        """Whether an operator has to ask for each unclean election."""
        self.unusual = unusual_settings_of(seed)
        source = self.random("world")
        self.is_durable = source.random() < 0.5
        """Whether brokers sync before they acknowledge; then the power may go."""
        self.thread_times = ThreadTimes(self.random("threads"))
        self.loop = simulated_loop(self.thread_times)
        self.trace = Trace(self.loop, lines)
        self.network: Network = Network(self.loop, self.random("network"), self.trace.note)
        self.history = History(lambda: self.loop.now_us, self._operation_changed)
        self.machines: dict[int, Machine] = {}
        self.judge = StoreJudge(
            self.history,
            self.loop,
            self.machines,
            self.random("looks of the judge"),
            is_durable=self.is_durable,
            unclean=[CLICKS] if self.elects_by_hand else [],
        )
        self.observer = Observer(self.history, self.loop, self.machines, self.judge)
        self.store_links = (
            None
            if scale.brokers == 1
            else StoreLinks(
                self.loop,
                self.network,
                self.random("store"),
                self.trace.note,
                self.observer,
            )
        )
        for broker_id in range(1, scale.brokers + 1):
            self.machines[broker_id] = Machine(
                broker_id,
                loop=self.loop,
                network=self.network,
                trace=self.trace,
                source=self.random(f"broker {broker_id}"),
                settings=self._broker_settings(),
                files={} if self.security is None else self.security.files(),
                listeners={
                    PLAINTEXT if self.security is None else PROTOCOL: PORT,
                    **({} if self.access is None else {GUESTS: GUESTS_PORT}),
                },
                on_start=self.observer.started,
                on_serve=self._serves,
                on_end=lambda broker_id: self.observer.registration_changed(broker_id, is_there=False),
                on_launch=self.observer.launched,
            )
        self.workload = Workload(
            self,
            partitions=scale.partitions,
            payments=scale.payments,
            parcels=scale.parcels if scale.brokers > PARCELS_REPLICAS else 0,
            replicas=min(3, scale.brokers),
        )
        self.network.add_host(OPERATOR, "10.0.2.1")
        self.faults = self._draw() if faults is None else list(faults)
        self.at_work: list[Fault] = []
        """The faults that have begun and not ended. Those of one broker may overlap if they last longer than drawn."""
        self.hits = 0
        self._faults_source = self.random("moments of faults")
        self.acknowledged = 0
        """How many records were acknowledged."""
        self._found: asyncio.Future[None] = self.loop.create_future()
        self._under_way: dict[Operation, None] = {}
        self._armed: list[asyncio.Future[None]] = []
        self._coming = asyncio.Event()
        self._doing: list[asyncio.Task[None]] = []
        """What operators have begun."""

    def random(self, name: str) -> Random:
        """A source of randomness of its own for everything that has a name."""
        return Random(f"{self.seed} {name}")

    def login(self, name: str, *, user: str = "") -> Login | None:
        """With what a client logs in, None if nobody has to. `user`: another one than that of its name."""
        if self.security is None:
            return None
        user = user or (ADMINISTRATORS if name in WHO_ADMINISTER else CLIENTS)
        source = self.random(f"nonces of {name} as {user} at {self.loop.time()}")
        return Login(self.history, name, credentials_of(self.security, user), source)

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """The brokers' addresses."""
        return [(machine.address, PORT) for machine in self.machines.values()]

    @property
    def topic_settings(self) -> dict[str, str]:
        """The settings of the topics."""
        return {"min.insync.replicas": "2"} if self.scale.brokers > 2 else {}

    def _broker_settings(self) -> dict[str, str]:
        replicas = str(min(3, self.scale.brokers))
        settings = {
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "log.segment.bytes": "65536",
            **GROUP_SETTINGS,
        }
        if self.scale.brokers > 2:
            settings |= {"transaction.state.log.min.isr": "2", "min.insync.replicas": "2"}
            settings |= {"replica.lag.time.max.ms": str(LONGEST_LAG_MS)}
        else:
            settings |= {"transaction.state.log.min.isr": "1"}
        if self.store_links is not None:
            settings |= SETTINGS
        if self.security is not None:
            settings |= self.security.settings()
        if self.access is not None:
            settings |= self.access.settings()
        if self.segments is not None:
            settings |= self.segments.settings()
        settings |= self.unusual.brokers
        if self.is_durable:
            settings |= {"log.flush.interval.messages": "1"}
        return settings

    def _serves(self, name: str, broker: Broker) -> None:
        self.observer.logs.watch(name, broker)
        if self.unusual.tries is not None:
            broker.completions._budget = self.unusual.tries

    def _draw(self) -> list[Fault]:
        return schedule(
            self.random("faults"),
            number=self.scale.faults,
            from_s=FIRST_FAULT * self.scale.seconds,
            until_s=LAST_FAULT * self.scale.seconds,
            brokers=list(self.machines),
            hosts=[
                host
                for host in self.network.hosts
                if host not in ("admin", LATE_LEADER, STRAY_BROKER, OPERATOR, STORE_HOST, *INTRUDERS, *ACCESS_CLIENTS)
            ],
            is_durable=self.is_durable,
            kinds=self.scale.kinds,
        )

    # --- running ------------------------------------------------------------------------------------------------

    def run(self) -> Result:
        """Runs from the start to the end."""
        gc.collect()
        was_enabled = gc.isenabled()
        gc.disable()  # when the collector runs must not decide what happens
        try:
            with small_blocks(), noted_in(self.history):
                final, violations = self.loop.run_until_complete(self._until_found())
            return self._result(final, violations)
        finally:
            self.loop.close()
            if was_enabled:
                gc.enable()

    async def _until_found(self) -> tuple[FinalState, list[Violation]]:
        if not self.scale.ends_when_found:
            return await self._direct()
        directing: asyncio.Task[tuple[FinalState, list[Violation]]] = self.loop.create_task(self._direct())
        either: list[asyncio.Future[Any]] = [directing, self._found]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not directing.done():
            final = examine(self.machines.values())
            violations = [each for each in check(self.history, final) if _is_found_at_once(each)]
            if violations:
                return final, violations
        return await directing

    async def _direct(self) -> tuple[FinalState, list[Violation]]:
        for machine in self.machines.values():
            machine.start()
        await self.workload.create_topics()
        self.workload.start()
        looking = [self.loop.create_task(look) for look in (self.observer.look(self.store_links), self.judge.look())]
        beginning = [self.loop.create_task(self._inflict(fault)) for fault in self.faults]
        await self._sleep_until(LAST_FAULT * self.scale.seconds)
        await asyncio.gather(*beginning)
        await self._mend()
        await self._sleep_until(LAST_WORK * self.scale.seconds)
        await self.workload.end()
        await self._sleep_until(self.scale.seconds)
        for look in looking:
            look.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await look
        return await self._converge()

    async def _converge(self) -> tuple[FinalState, list[Violation]]:
        """The state once nothing is violated, or once time heals nothing any more; and what is violated."""
        give_up_at = self.loop.time() + LONGEST_CONVERGENCE_S
        incurable = 0
        while True:
            messages = self.network.messages
            await asyncio.sleep(QUIET_S)
            settings = {change.setting: None for change in self.history.of(SettingChange)}
            final = examine(self.machines.values(), settings)
            if self.store_links is not None:
                final.settings = [*final.settings, *self.store_links.settings(settings)]
                final.stored = self.store_links.stored({key: None for view in final.views for key in view.partitions})
                final.metadata = self.store_links.metadata()
                if self.access is not None:
                    final.stored_access = access_in(self.store_links.store.tree)
                    running = {number: machine.running for number, machine in self.machines.items()}
                    final.access = {each: access_known_to(broker) for each, broker in running.items() if broker}
            final.unread = self.workload.unread({key: log.high_watermark for key, log in final.logs.items()})
            final.unsettled = self.workload.unsettled()
            final.messages_per_second = (self.network.messages - messages) / QUIET_S
            violations = check(self.history, final)
            is_healing = any(violation.invariant in HEALED_BY_TIME for violation in violations)
            incurable = 0 if is_healing else incurable + 1
            if not violations or incurable == INCURABLE_LOOKS or self.loop.time() > give_up_at:
                return final, violations

    async def _sleep_until(self, seconds: float) -> None:
        await asyncio.sleep(max(seconds - self.loop.time(), 0.0))

    async def _mend(self) -> None:
        """Ends everything that is still wrong."""
        await asyncio.gather(*self._doing)
        for machine in self.machines.values():
            machine.resume()
            machine.start()

    def _result(self, final: FinalState, violations: list[Violation]) -> Result:
        return Result(
            seed=self.seed,
            digest=self.trace.digest,
            events=self.trace.events,
            violations=violations,
            history=self.history,
            final=final,
            faults=self.faults,
            hits=self.hits,
            acknowledged_records=self.acknowledged,
            produce_requests=self.workload.requests,
            transactions=self.workload.transactions,
            records_read=sum(consumer.records for consumer in self.workload.consumers),
            seconds=self.loop.time(),
            failures=self.loop.failures,
            security=self.security,
        )

    def ends_of_logs(self) -> dict[TopicPartition, int]:
        """The high watermark of each partition, at its leader."""
        return {key: log.high_watermark for key, log in examine(self.machines.values()).logs.items()}

    # --- faults -------------------------------------------------------------------------------------------------

    async def _inflict(self, fault: Fault) -> None:
        await self._sleep_until(fault.at_s)
        self._coming.set()
        self._coming.clear()
        await asyncio.sleep(self._faults_source.uniform(0.0, LONGEST_WARNING_S))
        give_up_at = self.loop.time() + ARMED_S
        while (left_s := give_up_at - self.loop.time()) > 0:
            armed = self.loop.create_future()
            self._armed.append(armed)
            await asyncio.wait([armed], timeout=left_s)
            await asyncio.sleep(self._faults_source.uniform(0.0, 0.002))
            if self._under_way:
                self.hits += 1
                break
        kind = KINDS[fault.kind]
        self.trace.note(f"begin {fault}")
        self.at_work.append(fault)
        beginning = kind.begin(self, fault)
        if beginning is not None:
            await beginning
        await asyncio.sleep(fault.seconds)
        self.trace.note(f"end {fault}")
        kind.end(self, fault)
        self.at_work.remove(fault)

    async def fault_coming(self) -> None:
        """Returns shortly before the next fault: what begins now is hit by it."""
        await self._coming.wait()

    def _operation_changed(self, operation: Operation) -> None:
        self.trace.note("operation", operation.process, str(operation))
        if _ends_a_run(operation) and not self._found.done():
            self._found.set_result(None)
        if not isinstance(operation, IN_FLIGHT):
            return
        if operation.outcome is not Outcome.PENDING:
            self._under_way.pop(operation, None)
            if isinstance(operation, Send) and operation.outcome is Outcome.OK:
                self.acknowledged += len(operation.records)
            return
        self._under_way[operation] = None
        if self._armed:
            armed, self._armed = self._armed, []
            for future in armed:
                if not future.done():
                    future.set_result(None)

    def as_operator(self, act: Callable[[Cluster], Awaitable[object]]) -> asyncio.Task[None]:
        """An operator does this, as a client of its own. Without an answer, nothing more is done."""
        node = Node(OPERATOR)
        self.network.started(node)
        source = self.random(f"operator {len(self._doing)}")
        cluster = Cluster(OPERATOR, self.bootstrap, source, self.login(OPERATOR))

        async def begin() -> None:
            await cluster.refresh()
            with contextlib.suppress(NotSent, Unanswered):
                await act(cluster)

        self._doing.append(self.loop.run_as(node, self.loop.create_task, begin()))
        return self._doing[-1]

    def ask(self, broker_id: int, request: Message) -> None:
        """An operator asks a broker, once."""
        self.as_operator(lambda cluster: cluster.ask_broker(broker_id, request))

    def elect(self, controller_id: int, partitions: Collection[TopicPartition] | None = None) -> None:
        """An operator asks this controller for the preferred leaders of these partitions. None: of all."""
        self.ask(controller_id, elect_leaders(ElectionType.PREFERRED, partitions))

    def restart_gently(self, machine: Machine) -> None:
        """Stops a broker as SIGTERM does, and starts it again."""

        async def restart() -> None:
            await machine.stop()
            machine.start()

        self._doing.append(self.loop.run_as(self.loop.simulation, self.loop.create_task, restart()))


def _is_found_at_once(violation: Violation) -> bool:
    return any(map(_ends_a_run, violation.operations))


def _ends_a_run(operation: Operation) -> bool:
    """An exception of a broker does not: what is wrong about a planted bug comes to light without it."""
    is_exception = isinstance(operation, Misstep) and operation.finding.invariant == UNEXPECTED
    return isinstance(operation, Wrong) and not is_exception
