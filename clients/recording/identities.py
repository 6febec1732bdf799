"""The ids of a recording, and those that the brokers of a replay have given instead.

    learn(recorded, answered)   pairs the ids in two responses to the same request
    to_target(request)          a recorded request with the ids of the target
    to_recording(response)      a response with the ids of the recording

Ids are those of producers, members, generations, topics, clusters, fetch sessions, brokers and leader epochs. The first
pair of an id holds: if the target uses another id for the same thing later, the responses differ. Sequences and epochs
of producers are no ids: they follow from what was sent. Of the epochs of a member of a consumer group (KIP-848), which
depend on timing, the last pair holds: a request has the epoch that the target has told the member.
"""

from __future__ import annotations

import base64
from struct import Struct
from typing import Any, NamedTuple

from odradek.clients.recording.comparison import ZERO_ID
from odradek.clients.recording.decoding import Document
from odradek.clients.recording.topic_names import TopicNames
from odradek.protocol.errors import ProtocolError
from odradek.protocol.records import compute_crc, iter_batches

KINDS = {
    "ProducerId": "producer",
    "V3AndBelowProducerId": "producer",
    "ProducerIdFilters": "producer",
    "MemberId": "member",
    "Leader": "member",
    "TopicId": "topic",
    "ClusterId": "cluster",
    "SessionId": "session",
    "GenerationId": "generation",
    "GenerationIdOrMemberEpoch": "generation",
    "LeaderEpoch": "epoch",
    "CurrentLeaderEpoch": "epoch",
    "CommittedLeaderEpoch": "epoch",
    "LastFetchedEpoch": "epoch",
    "NodeId": "broker",
    "BrokerId": "broker",
    "LeaderId": "broker",
    "ControllerId": "broker",
    "ReplicaNodes": "broker",
    "IsrNodes": "broker",
    "OfflineReplicas": "broker",
    "BrokerIds": "broker",
    "Replicas": "broker",
    "AddingReplicas": "broker",
    "RemovingReplicas": "broker",
}
"""What the values of a field identify."""
MEMBER_EPOCH = "MemberEpoch"
MEMBER_EPOCHS = (MEMBER_EPOCH, "GenerationIdOrMemberEpoch")
"""The fields with the epoch of the member that the same structure names."""
OF_BROKERS = "Brokers"
"""The field with all brokers. Only there are two brokers known to be the same: leaders may be others."""
BROKER_RESOURCE = 4
PRODUCER_ID = Struct(">q")
PRODUCER_ID_AT, CRC_AT = 43, 17
CRC = Struct(">I")
Known = tuple[str, Any, Any]
"""(kind, where it is unique, id)"""


class Place(NamedTuple):
    """Where an id stands: some are unique only there."""

    connection: int
    group: str = ""
    topic: str = ""
    partition: int = -1
    is_broker_list: bool = False


class Identities:
    """`names` are shared with what else reads the responses."""

    def __init__(self, names: TopicNames) -> None:
        self._names = names
        self._to_target: dict[Known, Any] = {}
        self._to_recording: dict[Known, Any] = {}
        self._epochs: dict[tuple[str, str, int], int] = {}
        """The target's epochs of members, by group, member and the recorded epoch."""

    def learn(self, recorded: Any, answered: Any, connection: int, group: str = "") -> None:
        """Notes the pairs of ids in two responses to the same request, which `group` asks if one does."""
        self._learn(recorded, answered, Place(connection, group))

    def to_target(self, request: Document, connection: int) -> Document:
        """Returns a recorded request with the target's ids, those in its record batches, too."""
        place = Place(connection, group_of(request))
        changed: Document = self._changed(request, place, self._to_target)
        return changed

    def to_recording(self, response: Document, connection: int, group: str = "") -> Document:
        """Returns a response of the target with the recording's ids. Record batches stay."""
        changed: Document = self._changed(response, Place(connection, group), self._to_recording)
        return changed

    # Learning

    def _learn(self, recorded: Any, answered: Any, place: Place) -> None:
        if isinstance(recorded, dict) and isinstance(answered, dict):
            inside = self._inside(place, recorded)
            epoch = recorded.get(MEMBER_EPOCH, 0)
            if epoch > 0 and answered.get(MEMBER_EPOCH, 0) > 0:
                self._epochs[inside.group, str(recorded["MemberId"]), epoch] = answered[MEMBER_EPOCH]
            for field, value in recorded.items():
                other = answered.get(field)
                if field in KINDS and not isinstance(value, list):
                    self._pair(KINDS[field], inside, value, other)
                else:
                    self._learn(value, other, inside._replace(is_broker_list=field == OF_BROKERS))
        elif isinstance(recorded, list) and isinstance(answered, list) and len(recorded) == len(answered):
            recorded = sorted(recorded, key=lambda item: self._order(item, self._to_target))
            answered = sorted(answered, key=lambda item: self._order(item, {}))
            for one, other in zip(recorded, answered, strict=True):
                self._learn(one, other, place)

    def _order(self, item: Any, to_target: dict[Known, Any]) -> tuple[str, ...]:
        """The key by which the items of two lists are in the same order, whatever the ids of their topics are."""
        if not isinstance(item, dict):
            return (repr(item),)
        known = [str(item.get(name, "")) for name in ("Name", "Topic", "GroupId", "Key", "ResourceName")]
        numbers = [f"{item.get(name, 0):>12}" for name in ("PartitionIndex", "Partition", "Index", "NodeId")]
        metadata = str(item.get("Metadata", ""))
        topic_id = item.get("TopicId", "")
        name = self._names.name(str(to_target.get(("topic", None, topic_id), topic_id)))
        return (*known, *numbers, metadata, name)

    def _pair(self, kind: str, place: Place, recorded: Any, answered: Any) -> None:
        if kind == "broker" and not place.is_broker_list:
            return
        if not _is_id(kind, recorded) or not _is_id(kind, answered):
            return
        here, there = _key(kind, place, recorded), _key(kind, place, answered)
        if here not in self._to_target and there not in self._to_recording:
            self._to_target[here] = answered
            self._to_recording[there] = recorded

    # Replacing

    def _changed(self, value: Any, place: Place, table: dict[Known, Any]) -> Any:
        if isinstance(value, list):
            return [self._changed(item, place, table) for item in value]
        if not isinstance(value, dict):
            return value
        inside = self._inside(place, value)
        changed = {}
        for field, old in value.items():
            changed[field] = self._changed_field(field, old, inside, table)
        if table is self._to_target and "MemberId" in value:
            for field in MEMBER_EPOCHS:
                epoch = self._epochs.get((inside.group, str(value["MemberId"]), value.get(field, 0)))
                if epoch is not None:
                    changed[field] = epoch
        if value.get("ResourceType") == BROKER_RESOURCE and str(value.get("ResourceName")).isdigit():
            number = int(value["ResourceName"])
            changed["ResourceName"] = str(table.get(_key("broker", inside, number), number))
        return changed

    def _changed_field(self, field: str, old: Any, place: Place, table: dict[Known, Any]) -> Any:
        if field == "Records" and old and table is self._to_target:
            return base64.b64encode(self._changed_batches(base64.b64decode(old))).decode()
        if field in KINDS:
            kind = KINDS[field]
            if isinstance(old, list) and all(isinstance(item, int) for item in old):
                return [table.get(_key(kind, place, item), item) for item in old]
            if not isinstance(old, (list, dict)):
                return table.get(_key(kind, place, old), old)
        return self._changed(old, place, table)

    def _changed_batches(self, records: bytes) -> bytes:
        """Replaces the producer ids of batches, and their checksums."""
        data = bytearray(records)
        try:
            batches = list(iter_batches(records))
        except ProtocolError:
            return records
        for position, header in batches:
            changed = self._to_target.get(("producer", None, header.producer_id))
            if changed is not None and changed != header.producer_id:
                PRODUCER_ID.pack_into(data, position + PRODUCER_ID_AT, changed)
                CRC.pack_into(data, position + CRC_AT, compute_crc(bytes(data), position, header.size_in_bytes))
        return bytes(data)

    def _inside(self, place: Place, structure: Document) -> Place:
        """The place within a structure that names a group, a topic or a partition."""
        place = place._replace(group=group_of(structure) or place.group)
        topic = structure.get("Topic") or structure.get("Name")
        if not isinstance(topic, str) and "TopicId" in structure:
            topic = self._names.name(structure["TopicId"])
        partition = next(
            (structure[name] for name in ("PartitionIndex", "Partition", "Index") if name in structure), None
        )
        if isinstance(topic, str):
            place = place._replace(topic=topic)
        return place._replace(partition=partition) if isinstance(partition, int) else place


def group_of(structure: Document) -> str:
    """Returns the group that a request or a part of it is about, an empty text if it is about none."""
    group = structure.get("GroupId", "")
    return group if isinstance(group, str) else ""


def _is_id(kind: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return False
    if isinstance(value, str):
        return value not in ("", ZERO_ID)
    return bool(value > 0 if kind in ("session", "generation") else value >= 0)


def _key(kind: str, place: Place, value: Any) -> Known:
    unique: Any = None
    if kind == "session":
        unique = place.connection
    elif kind == "generation":
        unique = place.group
    elif kind == "epoch":
        unique = (place.topic, place.partition)
    return kind, unique, value
