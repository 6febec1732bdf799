"""Clients that try all the time what they may not do, at one broker after the other. Each try is an `Attempt`. If it
comes without a login or behind a wrong password, it is `Unproven`; after the end of a session, `Overslept`.

nameless    asks without a login
impostor    logs in with a wrong password, and asks nevertheless, also before the login is answered
sleeper     logs in as it may, and asks after the end of its session, or behind a renewal with a wrong password
stranger    logs in as it may, and has no rights: writes, reads, also as if it were a broker, commits, fences
            producers, deletes topics, gives itself rights
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

from odradek.broker.security.sasl.client import ClientCredentials
from odradek.broker.security.sasl.plain import PLAIN
from odradek.broker.security.sasl.scram import new_nonce
from odradek.clients.logins import RENEWED_AT, log_in
from odradek.clients.network_errors import LoginRefused
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest
from odradek.protocol.messages.producers import InitProducerIdRequest
from odradek.protocol.messages.sasl import SaslAuthenticateRequest
from odradek.protocol.messages.topics import DeleteTopicsRequest
from odradek.protocol.records import Record, build_batch
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing.acls import allow
from tests.simulation.client.acls import create_acls_request
from tests.simulation.client.cluster import Address
from tests.simulation.client.login import Login
from tests.simulation.client.requests import FetchFrom, fetch_request
from tests.simulation.client.transactions import commit_topics
from tests.simulation.client.wire import NotSent, Unanswered, Wire
from tests.simulation.history import History, Outcome
from tests.simulation.login_history import Attempt, Overslept, Unproven
from tests.simulation.security import BROKERS, CLIENTS, STRANGERS, Security, credentials_of
from tests.wire.requests import produce_batches

NAMELESS, IMPOSTOR, SLEEPER, STRANGER = INTRUDERS = ("nameless", "impostor", "sleeper", "stranger")
PAUSE_S = (0.4, 1.6)
TIMEOUT_S = 2.0
SLEEPING = 4
LATER_S = (0.002, 0.5)
"""How long after the end of its session the sleeper asks."""
ASK = MetadataRequest(topics=None, allow_auto_topic_creation=False)
MOST_BYTES = 1 << 20
WRONG_PASSWORD = "not the password"


class Forbidden(NamedTuple):
    """What the stranger may not do. `codes_of` reads the error codes in a response, which must all be `denial`."""

    what: str
    request: Message
    codes_of: Callable[[Any], Sequence[int]]
    denial: ErrorCode


class Targets(NamedTuple):
    """What the stranger aims at."""

    partitions: Sequence[TopicPartition]
    group: str
    transactional_id: str
    brokers: Sequence[int]


class Intruders:
    """`run` returns what each intruder does, by its name, until soon after `ending` is done."""

    def __init__(
        self,
        history: History,
        random: Callable[[str], Random],
        security: Security,
        *,
        bootstrap: Sequence[Address],
        targets: Targets,
        ending: asyncio.Future[None],
    ) -> None:
        self._history = history
        self._random = random
        self._security = security
        self._bootstrap = bootstrap
        self._targets = targets
        self._ending = ending
        self._written = 0

    def run(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """See the head of this file."""
        return {
            NAMELESS: self._repeat(NAMELESS, self._ask_unknown),
            IMPOSTOR: self._repeat(IMPOSTOR, self._pretend),
            SLEEPER: self._sleep(),
            STRANGER: self._trespass(),
        }

    async def _repeat(self, seeded_by: str, attempt: Callable[[Wire, Random], Coroutine[Any, Any, None]]) -> None:
        """Tries on one connection after the other."""
        source = self._random(seeded_by)
        while await self._pause(source):
            try:
                wire = await Wire.connect(*source.choice(self._bootstrap), seeded_by, TIMEOUT_S)
            except NotSent:
                continue
            await attempt(wire, source)
            wire.end()

    async def _pause(self, source: Random) -> bool:
        """Returns whether to go on."""
        await asyncio.wait([self._ending], timeout=source.uniform(*PAUSE_S))
        return not self._ending.done()

    async def _try(self, attempt: Attempt, asking: Coroutine[Any, Any, Any]) -> None:
        """Asks what must not be answered."""
        self._history.begin(attempt)
        try:
            await asking
        except (NotSent, Unanswered) as error:
            self._history.end(attempt, Outcome.FAILED, str(error))
        else:
            self._history.end(attempt, Outcome.OK)

    # --- nameless -----------------------------------------------------------------------------------------------

    async def _ask_unknown(self, wire: Wire, source: Random) -> None:
        request = source.choice([ASK, *(each.request for each in self._forbidden(source))])
        attempt = Unproven(process=NAMELESS, what=f"send {type(request).__name__} without a login")
        await self._try(attempt, wire.ask(request, TIMEOUT_S))

    # --- impostor -----------------------------------------------------------------------------------------------

    async def _pretend(self, wire: Wire, source: Random) -> None:
        user = source.choice([BROKERS, CLIENTS, "nobody"])
        await self._ask_behind_false_proof(IMPOSTOR, f"be {user} with a wrong password", user, wire, source)

    async def _ask_behind_false_proof(self, process: str, what: str, user: str, wire: Wire, source: Random) -> None:
        """Logs in with a wrong password. Asks when the login has been refused, or, at the same time, behind the token
        that is to prove the password."""
        waits = source.random() < 0.5
        tokens = 1 if self._security.mechanism == PLAIN else 2
        asking: list[asyncio.Task[None]] = []

        async def exchange(request: Message, version: int) -> Any:
            nonlocal tokens
            if isinstance(request, SaslAuthenticateRequest):
                tokens -= 1
                if not tokens and not waits:
                    asking.append(asyncio.get_running_loop().create_task(ask()))
            return await wire.exchange(request, version)

        async def ask() -> None:
            await self._try(Unproven(process=process, what=what), wire.ask(ASK, TIMEOUT_S))

        wrong = ClientCredentials(self._security.mechanism, user, WRONG_PASSWORD)
        try:
            await log_in(exchange, process, wrong, new_nonce(source))
        except LoginRefused:
            pass
        except (NotSent, Unanswered):
            await asyncio.gather(*asking)
            return
        await asyncio.gather(*asking)
        if waits:
            await ask()

    # --- sleeper ------------------------------------------------------------------------------------------------

    async def _sleep(self) -> None:
        """On several connections at a time: many break before their session ends."""
        async with asyncio.TaskGroup() as sleeping:
            for number in range(SLEEPING):
                sleeping.create_task(self._repeat(f"{SLEEPER} {number}", self._oversleep))

    async def _oversleep(self, wire: Wire, source: Random) -> None:
        credentials = credentials_of(self._security, CLIENTS)
        try:
            renewed_after_s = await log_in(wire.exchange, SLEEPER, credentials, new_nonce(source))
        except (LoginRefused, NotSent, Unanswered):
            return
        assert renewed_after_s is not None
        session_s = renewed_after_s / RENEWED_AT
        if source.random() < 0.5:
            await asyncio.wait([self._ending], timeout=source.uniform(0.0, session_s))
            await self._ask_behind_false_proof(SLEEPER, "keep its session", CLIENTS, wire, source)
            return
        await asyncio.wait([self._ending], timeout=session_s + source.uniform(*LATER_S))
        if not self._ending.done():
            attempt = Overslept(process=SLEEPER, what="ask after the end of its session")
            await self._try(attempt, wire.ask(ASK, TIMEOUT_S))

    # --- stranger -----------------------------------------------------------------------------------------------

    async def _trespass(self) -> None:
        source = self._random(STRANGER)
        login = Login(self._history, STRANGER, credentials_of(self._security, STRANGERS), source)
        wires: dict[Address, Wire] = {}
        while await self._pause(source):
            address = source.choice(self._bootstrap)
            wire = wires.get(address)
            try:
                if wire is None or not wire.is_usable:
                    wire = wires[address] = await Wire.connect(*address, STRANGER, TIMEOUT_S, login)
            except NotSent:
                continue
            await self._ask_forbidden(wire, source.choice(self._forbidden(source)))

    async def _ask_forbidden(self, wire: Wire, forbidden: Forbidden) -> None:
        attempt = self._history.begin(Attempt(process=STRANGER, what=forbidden.what))
        try:
            codes = forbidden.codes_of(await wire.ask(forbidden.request, TIMEOUT_S))
        except (NotSent, Unanswered) as error:
            self._history.end(attempt, Outcome.UNKNOWN, str(error))
            return
        names = [ErrorCode.of(code).name for code in codes]
        is_refused = bool(codes) and set(codes) <= {forbidden.denial, ErrorCode.NOT_CONTROLLER}
        self._history.end(attempt, Outcome.FAILED if is_refused else Outcome.OK, ", ".join(names))

    def _forbidden(self, source: Random) -> list[Forbidden]:
        """What the stranger may choose from."""
        targets = self._targets
        partition = source.choice(targets.partitions)
        self._written += 1
        return [
            _writing(partition, f"{STRANGER}:{self._written}"),
            _reading(partition, -1),
            _reading(partition, source.choice(targets.brokers)),
            _committing(partition, targets.group),
            _fencing(targets.transactional_id),
            _deleting(partition.topic),
            _giving_rights(),
        ]


def _writing(partition: TopicPartition, text: str) -> Forbidden:
    batch = build_batch([Record(value=f"{text} ".encode())])
    return Forbidden(
        f"write {text} to {partition}",
        produce_batches({partition: batch}, acks=1, timeout_ms=1000),
        lambda response: [each.error_code for topic in response.responses for each in topic.partition_responses],
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def _reading(partition: TopicPartition, replica_id: int) -> Forbidden:
    """As a consumer, or as the replica of a broker."""
    request = fetch_request(
        {partition: FetchFrom(0, MOST_BYTES)}, max_wait_ms=0, min_bytes=0, max_bytes=MOST_BYTES, isolation_level=0
    )
    request.replica_id = replica_id
    return Forbidden(
        f"read {partition}" if replica_id < 0 else f"follow {partition} as broker {replica_id}",
        request,
        lambda response: [each.error_code for topic in response.responses for each in topic.partitions],
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def _committing(partition: TopicPartition, group: str) -> Forbidden:
    return Forbidden(
        f"commit an offset of {group}",
        OffsetCommitRequest(group_id=group, member_id="", topics=commit_topics({partition: 1})),
        lambda response: [each.error_code for topic in response.topics for each in topic.partitions],
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    )


def _fencing(transactional_id: str) -> Forbidden:
    return Forbidden(
        f"fence {transactional_id}",
        InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=10_000),
        lambda response: [response.error_code],
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )


def _deleting(topic: str) -> Forbidden:
    return Forbidden(
        f"delete {topic}",
        DeleteTopicsRequest(topic_names=[topic], timeout_ms=1000),
        lambda response: [each.error_code for each in response.responses],
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    )


def _giving_rights() -> Forbidden:
    return Forbidden(
        "give itself rights",
        create_acls_request(allow(STRANGERS, "ALL", topic="*")),
        lambda response: [each.error_code for each in response.results],
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    )
