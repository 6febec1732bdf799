"""`odradek replay` and `odradek compare`: sends a recording again, and says where the responses differ.

(A) Requests are sent in the order of the recording, each connection's on a connection of its own. A request is sent
    when all responses that were recorded before it have arrived.
(B) Ids are replaced by those that the target has given (identities.py). Times, addresses and ids are not compared, and
    texts for people only as being there or not (comparison.py). Fetch responses are compared as a whole (fetched.py),
    and batches that a target returned too early to have are fetched (late_batches.py).
    Last stable offsets are not compared, nor are high watermarks: a coordinator writes its markers after the response
    to EndTxn.
    What members of consumer groups were told is compared when they leave (heartbeats.py).
(C) Logins are not sent, since their secrets are not recorded: with credentials, each connection logs in before. Neither
    are other requests with secrets. They are counted.
(D) With two targets, the responses of one are compared with those of the other. The recording's are not compared.
(E) Requests that were answered with "not yet" are not sent (not_yet.py). They are counted.
(F) How a connection ends is not compared, nor are responses that cannot be decoded, as long as they come.
(G) A response that does not come is one difference, which says why.
(H) A request that a target does not list is not sent to it (listed.py). It is one difference, and counted.
(I) A recording without a request that can be sent is an error: nothing would be compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from odradek.clients.admin.groups import LATEST
from odradek.clients.recording.addresses import text_of
from odradek.clients.recording.comparison import (
    Rules,
    comparable,
    differences,
    rules_at,
    without_internal_of_one,
    without_offsets,
)
from odradek.clients.recording.conversation import Asked, Conversation, answered_of
from odradek.clients.recording.decoding import Document, decoded_request, decoded_response
from odradek.clients.recording.fetched import Fetched, fetched_differences
from odradek.clients.recording.heartbeats import JOINING, Beat, Member, Told, beat_of, is_enough
from odradek.clients.recording.identities import group_of
from odradek.clients.recording.late_batches import Reader
from odradek.clients.recording.not_yet import answered_not_yet
from odradek.clients.recording.recording_file import Entry, Kind, RecordingError
from odradek.clients.recording.target import ENDED, UNDECODED, IsEnough, Target
from odradek.clients.recording.topic_names import TopicNames
from odradek.protocol.api_keys import ApiKey
from odradek.timer import Clock

LONGEST_SHOWN = 200
LOGINS = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class Difference(NamedTuple):
    """`time_us` and `connection` say where in the recording, `where` which field."""

    time_us: int
    connection: int
    where: str
    expected: Any
    found: Any

    def line(self, one: str, other: str) -> str:
        """Returns it as text, with the names of both sides."""
        values = f"{one} {_shown(self.expected)}, {other} {_shown(self.found)}"
        return f"{self.time_us / 1e6:.3f} #{self.connection} {self.where}: {values}"


@dataclass(slots=True)
class Summary:
    """What was sent and compared. `skipped` requests have secrets, those of `not_yet` came too early for the recorded
    cluster, `unlisted` ones a target does not list. `undecoded` responses could not be compared.
    """

    requests: int = 0
    responses: int = 0
    skipped: int = 0
    not_yet: int = 0
    unlisted: int = 0
    undecoded: int = 0
    differences: int = 0


class _Request(NamedTuple):
    """A request that was sent to `targets`. `asks_for_stable_ends`: for last stable offsets (B). `beat`: of a heartbeat
    to a consumer group.
    """

    group: str
    reader: Reader
    asks_for_stable_ends: bool
    beat: Beat | None
    targets: Sequence[Target]


class _Conversation:
    """A connection of the recording, and its requests that are not answered yet."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.requests: dict[int, _Request] = {}


class Replay:
    """Sends a recording to one target, or to two. `report` gets each difference. `started_ms` is the time of the
    recording. With `is_timed`, pauses are those of the recording.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        started_ms: int,
        clock: Clock,
        report: Callable[[Difference], None],
        *,
        is_timed: bool = False,
    ) -> None:
        self._targets = targets
        self._started_ms = started_ms
        self._clock = clock
        self._report = report
        self._is_timed = is_timed
        self._connections: dict[int, _Conversation] = {}
        self._recorded_names = TopicNames()
        self._recorded_fetches = Fetched(self._recorded_names)
        self._recorded_told = Told(self._recorded_names.name)
        self._told = [Told(self._recorded_names.name) for _ in targets]
        """By the targets, with the ids of the recording."""
        self._brokers: dict[str, int] = {}
        """The ids of the recorded brokers by their addresses, of those, too, that a later response does not have."""
        self._not_yet: set[tuple[int, int]] = set()
        self._last_us = 0
        self.summary = Summary()

    async def run(self, entries: Callable[[], Iterable[Entry]]) -> Summary:
        """`entries` is called twice. Raises NetworkError if a target cannot be reached, and RecordingError (I)."""
        self._not_yet = answered_not_yet(entries())
        try:
            for target in self._targets:
                await target.start()
            begin = asyncio.get_running_loop().time()
            for entry in entries():
                if self._is_timed:
                    await asyncio.sleep(begin + entry.time_us / 1e6 - asyncio.get_running_loop().time())
                self._last_us = entry.time_us
                await self._take(entry)
            self._compare_fetches()
            for member in self._recorded_told.members():
                self._compare_told(self._last_us, 0, member)
            if not self.summary.requests + self.summary.unlisted:
                raise RecordingError("the recording has no request that can be sent: did clients connect to the proxy?")
        finally:
            for target in self._targets:
                await target.stop()
        return self.summary

    async def _take(self, entry: Entry) -> None:
        if entry.kind is Kind.OPENED:
            self._connections[entry.connection] = _Conversation()
            broker = self._brokers.get(entry.facts.get("broker", ""))
            ids = sorted(set(self._brokers.values()))
            for target in self._targets:
                await target.open(entry.connection, None if broker is None else (ids.index(broker), len(ids)))
        elif entry.connection not in self._connections:
            return
        elif entry.kind is Kind.CLOSED:
            del self._connections[entry.connection]
            for target in self._targets:
                target.close(entry.connection)
        elif entry.kind is Kind.REQUEST:
            await self._request(entry, self._connections[entry.connection])
        else:
            await self._response(entry, self._connections[entry.connection])

    async def _request(self, entry: Entry, connection: _Conversation) -> None:
        asked = connection.conversation.asked(entry.data)
        if asked is None:
            return
        is_early = (entry.connection, asked.number) in self._not_yet
        has_secrets = asked.is_token or asked.api_key in LOGINS or entry.is_redacted
        self.summary.skipped += has_secrets
        self.summary.not_yet += is_early
        if has_secrets or is_early:
            return
        targets = self._that_list(entry, asked)
        for target in targets:
            await target.send(entry.connection, asked, entry.data)
        if targets:
            self.summary.requests += 1
            connection.requests[asked.number] = _request_of(asked, entry.data, targets)

    def _that_list(self, entry: Entry, asked: Asked) -> list[Target]:
        """Returns the targets that a request can be sent to. If there are others, says so (H)."""
        reasons = [target.why_not(entry.connection, asked) for target in self._targets]
        if any(reasons):
            self.summary.unlisted += 1
            self._differ_as_a_whole(entry, asked, [reason or "sent" for reason in reasons], "sent")
        return [target for target, reason in zip(self._targets, reasons, strict=True) if not reason]

    async def _response(self, entry: Entry, connection: _Conversation) -> None:
        asked = connection.conversation.answered(entry.data)
        if asked is None:
            return
        request = answered_of(connection.requests, asked.number)
        if request is None:
            return
        decoded = decoded_response(asked, entry.data)
        recorded = UNDECODED if decoded is None else decoded.document
        if request.beat is not None:
            request = request._replace(beat=request.beat.answered(recorded))
        self._recorded_names.learn(recorded)
        self._learn_brokers(recorded)
        responses = [
            await target.response(entry.connection, asked, self._enough(entry.connection, request, recorded, target))
            for target in request.targets
        ]
        for target, response in zip(request.targets, responses, strict=True):
            target.identities.learn(recorded, response, entry.connection, request.group)
        if request.beat is not None:
            self._note_told(entry, request, request.beat, recorded, responses)
        if len(responses) < len(self._targets):
            return
        self.summary.responses += 1
        if any(ENDED in response for response in responses):
            shown = [response.get(ENDED, "an answer") for response in responses]
            self._differ_as_a_whole(entry, asked, shown, "an answer")
        elif UNDECODED in (recorded, *responses):
            self.summary.undecoded += 1
        else:
            if asked.api_key == ApiKey.FETCH:
                await self._fetch(entry.connection, request.reader, recorded, responses)
            self._compare(entry, asked, request, recorded, responses)

    def _enough(self, connection: int, request: _Request, recorded: Document, target: Target) -> IsEnough | None:
        """Returns what a response to a heartbeat must bring."""
        beat = request.beat
        if beat is None or beat.leaves:
            return None
        told = self._told[self._targets.index(target)]
        wanted = self._recorded_told.with_response(beat.member, recorded)

        def enough(sent: Beat, response: Document) -> bool:
            translated = target.identities.to_recording(response, connection, request.group)
            return is_enough(beat, recorded, sent, translated, told, wanted)

        return enough

    def _note_told(
        self, entry: Entry, request: _Request, beat: Beat, recorded: Document, responses: Sequence[Document]
    ) -> None:
        """Notes what a member was told. If it leaves, compares what it was told last."""
        if beat.leaves:
            self._compare_told(entry.time_us, entry.connection, beat.member)
            return
        self._recorded_told.add(beat.member, recorded)
        for target, response in zip(request.targets, responses, strict=True):
            told = self._told[self._targets.index(target)]
            told.add(beat.member, target.identities.to_recording(response, entry.connection, request.group))
            is_told = beat.epoch != JOINING and recorded.get("Assignment") is not None
            if is_told and told.last(beat.member) != self._recorded_told.last(beat.member):
                told.in_vain.add(beat.member)

    def _compare_told(self, time_us: int, connection: int, member: Member) -> None:
        sides = [told.pop(member) for told in (self._recorded_told, *self._told)]
        one, other = sides[-2:]
        if one != other:
            self._differ(time_us, connection, f"ConsumerGroupHeartbeat.{member.group}.{member.member_id}", one, other)

    def _differ_as_a_whole(self, entry: Entry, asked: Asked, shown: Sequence[str], recorded: str) -> None:
        """The responses of the targets are no documents (G) (H)."""
        expected, found = shown if len(shown) == 2 else (recorded, *shown)
        if expected != found:
            self._differ(entry.time_us, entry.connection, f"{asked.api_name} {asked.version}", expected, found)

    def _learn_brokers(self, recorded: Document) -> None:
        brokers = recorded.get("Brokers")
        if isinstance(brokers, list) and brokers and "Host" in brokers[0]:
            for broker in brokers:
                address = text_of((broker["Host"], broker["Port"]))
                self._brokers[address] = broker.get("NodeId", broker.get("BrokerId", 0))

    async def _fetch(self, connection: int, reader: Reader, recorded: Document, responses: Sequence[Document]) -> None:
        """Notes what the responses to a Fetch have. What one has and a target has not is fetched from it."""
        of_targets = [
            target.fetched.add(response, connection) for target, response in zip(self._targets, responses, strict=True)
        ]
        for wanted in (self._recorded_fetches.add(recorded, connection), *of_targets):
            for target in self._targets:
                await target.fetch_late(connection, reader, wanted)

    def _compare(
        self, entry: Entry, asked: Asked, request: _Request, recorded: Document, responses: Sequence[Document]
    ) -> None:
        rules = _rules(self._clock.wall_ms(), self._started_ms + entry.time_us // 1000, self._recorded_names)
        translated = [
            target.identities.to_recording(response, entry.connection, request.group)
            for target, response in zip(self._targets, responses, strict=True)
        ]
        one, other = translated if len(translated) == 2 else (recorded, *translated)
        if asked.api_key == ApiKey.METADATA:
            one, other = without_internal_of_one(one, other)
        if request.asks_for_stable_ends:
            one, other = without_offsets(one), without_offsets(other)
        shown = [comparable(_plain(asked, response), rules) for response in (one, other)]
        for path, expected, found in differences(shown[0], shown[1]):
            self._differ(entry.time_us, entry.connection, f"{asked.api_name} {asked.version}{path}", expected, found)

    def _compare_fetches(self) -> None:
        fetches = [target.fetched for target in self._targets]
        if len(fetches) == 1:
            fetches.insert(0, self._recorded_fetches)
        for of, where, expected, found in fetched_differences(*fetches):
            self._differ(self._last_us, of.connection, where, expected, found)

    def _differ(self, time_us: int, connection: int, where: str, expected: Any, found: Any) -> None:
        self.summary.differences += 1
        self._report(Difference(time_us, connection, where, expected, found))


def _request_of(asked: Asked, data: bytes, targets: Sequence[Target]) -> _Request:
    decoded = decoded_request(asked, data)
    document = {} if decoded is None else decoded.document
    reader = Reader(asked.version, document.get("IsolationLevel", 0))
    partitions = [each for topic in document.get("Topics") or () for each in topic.get("Partitions") or ()]
    beat = beat_of(document) if asked.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT and document else None
    is_at_end = asked.api_key == ApiKey.LIST_OFFSETS and any(each["Timestamp"] == LATEST for each in partitions)
    return _Request(group_of(document), reader, is_at_end and bool(reader.isolation_level), beat, targets)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _plain(asked: Asked, response: Document) -> Document:
    """The part of a response that is compared at once, with ApiVersions by the names of the APIs."""
    if asked.api_key == ApiKey.FETCH:
        return {field: value for field, value in response.items() if field not in ("Responses", "SessionId")}
    if asked.api_key == ApiKey.CONSUMER_GROUP_HEARTBEAT:
        return {field: value for field, value in response.items() if field != "Assignment"}
    if asked.api_key == ApiKey.API_VERSIONS and "ApiKeys" in response:
        served = {_api_name(api["ApiKey"]): f"{api['MinVersion']}-{api['MaxVersion']}" for api in response["ApiKeys"]}
        return {**response, "ApiKeys": served}
    return response


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).api_name
    except ValueError:
        return str(api_key)


def _rules(now_ms: int, recorded_ms: int, names: TopicNames) -> Rules:
    """Records keep the times at which they were recorded; brokers add those of the replay. The `names` of topics are
    compared instead of their ids, where they are known.
    """
    rules = rules_at(lambda: now_ms, lambda: recorded_ms)
    blurred: Mapping[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("TransactionStartTimeMs", "ExpiryTimestampMs", "IssueTimestampMs"), rules["Timestamp"]),
        **dict.fromkeys(("Host", "ClientHost"), lambda value: "HOST" if value else value),
        **dict.fromkeys(("TotalBytes", "UsableBytes"), lambda value: "BYTES" if value >= 0 else value),
        "ThrottleTimeMs": lambda value: 0,
        **dict.fromkeys(
            ("MemberEpoch", "GroupEpoch", "AssignmentEpoch"), lambda value: "EPOCH" if value > 0 else value
        ),
        "TopicId": lambda value: names.name(value) if names.knows(value) else rules["TopicId"](value),
    }
    return {**rules, **blurred}
