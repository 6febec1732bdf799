"""Clients whose access changes during the run, and who changes it: see access.py.

AccessKeeper   adds and removes rules about the topic `guarded`, some at several brokers at once; gives the visitor one
               password after the other, and takes it now and then
Guest          writes to `guarded` and reads it, at one broker after the other, whether it may or not: mostly in a
               fetch session, together with a topic that is not there, about which other rules decide
Visitor        logs in at one broker after the other, with the latest passwords
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from itertools import count, product
from random import Random
from typing import Any

from odradek.broker.security.sasl.client import ClientCredentials
from odradek.broker.security.sasl.scram import new_nonce
from odradek.clients.logins import log_in
from odradek.clients.network_errors import LoginRefused
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchResponse
from odradek.protocol.records import Record, build_batch, iter_batches
from odradek.protocol.topic_partition import TopicPartition
from odradek.testing.acls import principal_of
from tests.simulation.access import ADDRESSES, GUARDED, GUEST, GUESTS_PORT, KEEPER, MECHANISM, PATTERNS, VISITOR
from tests.simulation.access_history import Admission, Pattern, Rule, Visit
from tests.simulation.administration import Pauses
from tests.simulation.client.access import AccessAdmin
from tests.simulation.client.admin import Admin
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.requests import FetchFrom, Session, fetch_request
from tests.simulation.client.wire import NotSent, Unanswered, Wire
from tests.simulation.clock import START_OF_TIME_MS
from tests.simulation.final_state import texts_of
from tests.simulation.history import History, Outcome
from tests.wire.requests import produce_batches

PARTITION = TopicPartition(GUARDED, 0)
BESIDE = TopicPartition(f"{GUARDED}-beside", 0)
"""Of a topic that is not there."""
NO_SESSION, NEW_SESSION = Session(), Session(epoch=0)
SESSIONS_SHARE = 0.8
GUESTS_PASSWORD = "guest-secret"
RULES = [
    Rule(principal, host, operation, permission)
    for permission, operation, host, principal in product(
        (*["ALLOW"] * 4, "DENY"),
        ("WRITE", "READ", "ALL"),
        ("*", "*", ADDRESSES[GUEST], ADDRESSES[VISITOR]),
        (*[principal_of(GUEST)] * 3, principal_of(VISITOR)),
    )
]
"""Those about another host or another user must have no effect."""
MOST_RULES = 6
VISIT_EVERY_S, LOGIN_EVERY_S = (0.1, 0.4), (1.0, 2.5)
TIMEOUT_S = 2.0
MOST_BYTES = 1 << 16


class AccessKeeper:
    """Creates the topic and the users first. `run` returns soon after `is_ending` was set."""

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        source: Random,
        pauses: Pauses,
        *,
        replicas: int,
        configs: Mapping[str, str],
    ) -> None:
        """`replicas` and `configs` are those of the topic."""
        self.is_ending = False
        self.passwords = [f"{VISITOR}-0"]
        """The visitor's, the latest one last."""
        self._cluster = cluster
        self._admin = AccessAdmin(cluster, history, name=KEEPER)
        self._topics = Admin(cluster, history, name=KEEPER)
        self._source = source
        self._pauses = pauses
        self._replicas = replicas
        self._configs = configs
        self._added: dict[tuple[Pattern, Rule], None] = {}
        """The rules that may be there."""

    async def run(self) -> None:
        """Does so until the end."""
        source = self._source
        await self._topics.create_topic(GUARDED, 1, self._replicas, self._configs)
        for user, password in ((GUEST, GUESTS_PASSWORD), (VISITOR, self.passwords[0])):
            while await self._admin.change_password(self._broker(), user, password) is not Outcome.OK:
                await self._cluster.back_off()
        for number in count(1):
            if self.is_ending:
                return
            if source.random() < 0.25:
                password = f"{VISITOR}-{number}" if source.random() < 0.7 else ""
                if password:
                    self.passwords.append(password)
                await self._admin.change_password(self._broker(), VISITOR, password)
            else:
                one, other = source.choice(PATTERNS), source.choice(PATTERNS)
                at_once = source.choice(((one,), (one, one), (one, other)))
                await asyncio.gather(*map(self._change_rule, at_once))
            await self._pauses.pause()

    async def _change_rule(self, pattern: Pattern) -> None:
        """Adds a rule to the pattern, or removes one of all."""
        source, added = self._source, self._added
        if source.random() < len(added) / MOST_RULES:
            chosen = source.choice(list(added))
            outcome = await self._admin.change_rule(self._broker(), *chosen, adds=False)
            if outcome is Outcome.OK:
                added.pop(chosen, None)
            return
        rule = source.choice(RULES)
        added[pattern, rule] = None
        await self._admin.change_rule(self._broker(), pattern, rule, adds=True)

    def _broker(self) -> int:
        return self._source.choice(sorted(self._cluster.brokers))


class Guest:
    """`brokers`: their addresses. `run` returns soon after `is_ending` was set."""

    def __init__(self, history: History, source: Random, *, brokers: Mapping[int, str], is_open: bool) -> None:
        self.is_ending = False
        self._history = history
        self._source = source
        self._brokers = brokers
        self._is_open = is_open
        self._wires: dict[int, Wire] = {}
        self._sessions: dict[int, Session] = {}
        self._written = 0
        self._position = 0

    async def run(self) -> None:
        """Does so until the end."""
        source = self._source
        while not self.is_ending:
            await asyncio.sleep(source.uniform(*VISIT_EVERY_S))
            broker_id = source.choice(list(self._brokers))
            wire = self._wires.get(broker_id)
            if wire is None or not wire.is_usable:
                host = self._brokers[broker_id]
                wire = await _admitted(self._history, source, GUEST, GUESTS_PASSWORD, broker_id, host)
            if wire is not None:
                self._wires[broker_id] = wire
                await (self._write if source.random() < 0.5 else self._read)(wire, broker_id)

    async def _write(self, wire: Wire, broker_id: int) -> None:
        self._written += 1
        text = f"{GUEST}:{self._written}"
        visit = self._begin(broker_id, "WRITE", records=(text,))
        sent_ms = START_OF_TIME_MS + visit.invoked_us // 1000
        batch = build_batch([Record(timestamp=sent_ms, value=text.encode())])
        request = produce_batches({PARTITION: batch}, acks=-1, timeout_ms=1000)
        answer = await self._ask([visit], wire.ask(request, TIMEOUT_S))
        if answer is not None:
            self._end(visit, answer.responses[0].partition_responses[0])

    async def _read(self, wire: Wire, broker_id: int) -> None:
        has_session = self._source.random() < SESSIONS_SHARE
        session = self._sessions.pop(broker_id, NEW_SESSION) if has_session else NO_SESSION
        start = {PARTITION: FetchFrom(self._position, MOST_BYTES), BESIDE: FetchFrom(0, MOST_BYTES)}
        request = fetch_request(
            start, max_wait_ms=0, min_bytes=0, max_bytes=MOST_BYTES, isolation_level=0, session=session
        )
        visits = {partition.topic: self._begin(broker_id, "READ", partition.topic) for partition in start}
        answer: FetchResponse | None = await self._ask(visits.values(), wire.ask(request, TIMEOUT_S))
        if answer is None:
            return
        if answer.session_id:
            self._sessions[broker_id] = Session(answer.session_id, session.epoch + 1)
        found = {topic.topic: topic.partitions[0] for topic in answer.responses}
        self._got(visits[GUARDED], found.get(GUARDED))
        for topic, visit in visits.items():
            self._end(visit, found.get(topic))

    def _begin(self, broker_id: int, operation: str, topic: str = GUARDED, records: tuple[str, ...] = ()) -> Visit:
        visit = Visit(
            process=GUEST,
            user=GUEST,
            host=ADDRESSES[GUEST],
            broker_id=broker_id,
            operation=operation,
            topic=topic,
            records=records,
            is_open=self._is_open,
        )
        return self._history.begin(visit)

    async def _ask(self, visits: Collection[Visit], asking: Coroutine[Any, Any, Any]) -> Any:
        """Returns the answer; None if there is none, or one without partitions, and ends the visits."""
        try:
            answer = await asking
            code = ErrorCode.of(getattr(answer, "error_code", ErrorCode.NONE))
        except (NotSent, Unanswered) as error:
            answer, reason = None, str(error)
        else:
            answer, reason = (None, code.name) if code else (answer, "")
        for visit in visits if answer is None else ():
            self._history.end(visit, Outcome.UNKNOWN, reason)
        return answer

    def _end(self, visit: Visit, found: Any) -> None:
        """`found`: what the answer says of the topic; None: in a session there is nothing new."""
        code = ErrorCode.NONE if found is None else ErrorCode.of(found.error_code)
        is_denied = code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        self._history.end(visit, Outcome.FAILED if is_denied else Outcome.OK, code.name)

    def _got(self, visit: Visit, found: Any) -> None:
        """Notes what was read."""
        content = b"" if found is None else bytes(found.records or b"")
        for position, header in iter_batches(content):
            visit.records += tuple(text for _, text in texts_of(content[position : position + header.size_in_bytes]))
            self._position = header.last_offset + 1


class Visitor:
    """Takes one of the latest passwords that the keeper has given, so that it is right or was right. `run` returns soon
    after `is_ending` was set."""

    def __init__(
        self, history: History, source: Random, *, brokers: Mapping[int, str], passwords: Sequence[str]
    ) -> None:
        self.is_ending = False
        self._history = history
        self._source = source
        self._brokers = brokers
        self._passwords = passwords

    async def run(self) -> None:
        """Does so until the end."""
        source = self._source
        while not self.is_ending:
            await asyncio.sleep(source.uniform(*LOGIN_EVERY_S))
            password = source.choice(self._passwords[-2:])
            broker_id = source.choice(list(self._brokers))
            wire = await _admitted(self._history, source, VISITOR, password, broker_id, self._brokers[broker_id])
            if wire is not None:
                wire.end()


async def _admitted(
    history: History, source: Random, user: str, password: str, broker_id: int, host: str
) -> Wire | None:
    """Logs in on a new connection, which it returns; None if that fails."""
    try:
        wire = await Wire.connect(host, GUESTS_PORT, user, TIMEOUT_S)
    except NotSent:
        return None
    login = history.begin(Admission(process=user, user=user, password=password, broker_id=broker_id))
    try:
        await log_in(wire.exchange, host, ClientCredentials(MECHANISM, user, password), new_nonce(source))
    except LoginRefused as error:
        history.end(login, Outcome.FAILED, str(error))
    except (NotSent, Unanswered) as error:
        history.end(login, Outcome.UNKNOWN, str(error))
    else:
        history.end(login, Outcome.OK)
        return wire
    wire.end()
    return None
