"""A group of a broker, and the requests of its members in the form in which scripts record them (recorder.py)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from odradek.protocol.compiler import decode_versioned, encode_versioned
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from odradek.protocol.messages.group_admin import DeleteGroupsRequest, DescribeGroupsRequest
from odradek.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.offsets import OffsetCommitRequest, OffsetFetchRequest
from odradek.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from odradek.protocol.schema import Message
from odradek.protocol.wire_codes import ConfigResourceType
from tests.wire.blocking_client import Client

REBALANCE_MS = 60_000
CLASSIC_SESSION_MS = 45_000
OWNED_SINCE = 1
"""The first version of a classic member's subscription with the partitions that it owns."""
UNKNOWN_TOPIC = UUID(int=0x0DD)
DEADLINE_S = 20
Partitions = dict[str, list[int]]


class WireGroup:
    """`prefix` is the group's id, and stands before the names of its topics, so that scripts do not meet. `behind_s`:
    how much later than its metadata the broker's groups have a change of topics.
    """

    def __init__(self, client: Client, prefix: str, behind_s: float = 0) -> None:
        self.client = client
        self.prefix = prefix
        self._behind_s = behind_s
        self._ids: dict[str, UUID] = {}
        self._names: dict[UUID, str] = {}
        """Also those of deleted topics, of which members may own something yet."""
        self._deleted: set[str] = set()

    # --- topics -------------------------------------------------------------------------------------------------

    def create_topics(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            self.client.create(self.prefix + name, count)
        self._until({name: count for name, count in counts.items() if count})

    def add_partitions(self, name: str, count: int) -> None:
        """Gives a topic so many partitions. It is created if there is none."""
        if name not in self._ids or name in self._deleted:
            self.create_topics({name: count})
            return
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=self.prefix + name, count=count, assignments=None)
        response = self.client.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 2)
        assert response.results[0].error_code == 0
        self._until({name: count})

    def delete_topic(self, name: str) -> None:
        response = self.client.ask(DeleteTopicsRequest(topic_names=[self.prefix + name], timeout_ms=10_000), 4)
        assert response.responses[0].error_code == 0
        self._deleted.add(name)
        self._until({name: 0})

    def _until(self, counts: Mapping[str, int]) -> None:
        """Waits until the broker knows the topics with so many partitions; none if they are deleted."""
        end_s = time.monotonic() + DEADLINE_S
        names = [MetadataRequest.MetadataRequestTopic(name=self.prefix + name) for name in counts]
        while True:
            found = self.client.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), 12).topics
            known = {(each.name or "").removeprefix(self.prefix): each for each in found}
            if {name: len(each.partitions) for name, each in known.items()} == dict(counts):
                break
            assert time.monotonic() < end_s, f"{counts} of {self.prefix} do not come"
            time.sleep(0.05)
        for name, each in known.items():
            if counts[name]:
                self._ids[name] = each.topic_id
                self._names[each.topic_id] = name
                self._deleted.discard(name)
        time.sleep(self._behind_s)

    def partitions(self, topics: Any) -> Partitions:
        return dict(sorted((self._names[each.topic_id], sorted(each.partitions)) for each in topics))

    # --- members of the new protocol ----------------------------------------------------------------------------

    def _heartbeat(self, fields: Mapping[str, Any]) -> Message:
        owned, topics, regex = fields.get("owned"), fields.get("topics"), fields.get("regex")
        return ConsumerGroupHeartbeatRequest(
            group_id=self.prefix,
            member_id=fields["member"],
            member_epoch=fields["epoch"],
            instance_id=fields.get("instance"),
            rack_id=fields.get("rack"),
            rebalance_timeout_ms=fields.get("timeout", -1),
            subscribed_topic_names=None if topics is None else [self.prefix + name for name in topics],
            subscribed_topic_regex=None if regex is None else regex.replace("{}", self.prefix),
            server_assignor=fields.get("assignor"),
            topic_partitions=None
            if owned is None
            else [
                ConsumerGroupHeartbeatRequest.TopicPartitions(
                    topic_id=self._ids.get(name, UNKNOWN_TOPIC), partitions=partitions
                )
                for name, partitions in owned.items()
            ],
        )

    def beat(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        response = self.client.ask(self._heartbeat(fields), fields.get("version", 1))
        if response.error_code:
            return {"error": response.error_code}
        assignment = response.assignment
        made = {} if fields["member"] else {"member": response.member_id}
        return {
            "error": 0,
            "epoch": response.member_epoch,
            "assignment": None if assignment is None else self.partitions(assignment.topic_partitions),
            **made,
        }

    def describe(self) -> dict[str, Any]:
        """Describes the group as one of the new protocol."""
        (group,) = self.client.ask(ConsumerGroupDescribeRequest(group_ids=[self.prefix]), 1).groups
        if group.error_code:
            return {"error": group.error_code}
        return {
            "error": 0,
            "state": group.group_state,
            "epoch": group.group_epoch,
            "target_epoch": group.assignment_epoch,
            "members": {
                member.member_id: {
                    "instance": member.instance_id,
                    "epoch": member.member_epoch,
                    "assignment": self.partitions(member.assignment.topic_partitions),
                    "target": self.partitions(member.target_assignment.topic_partitions),
                }
                for member in sorted(group.members, key=lambda each: each.member_id)
            },
        }

    # --- classic members ----------------------------------------------------------------------------------------

    def classic(self, kind: str, fields: Mapping[str, Any], protocol: str) -> tuple[Message, int]:
        """Returns a request and its version. `kind`: "join", "sync", "stay" or "leave". `protocol`: of a sync."""
        if kind == "sync":
            return self._sync(fields, protocol)
        made: tuple[Message, int] = getattr(self, f"_{kind}")(fields)
        return made

    def answered(self, kind: str, response: Any) -> dict[str, Any]:
        """Returns the response to it as scripts record it."""
        if kind == "leave":
            return {"errors": [member.error_code for member in response.members]}
        answer = {"error": response.error_code}
        if kind == "join":
            answer["member"] = response.member_id
            if not response.error_code:
                answer.update(
                    generation=response.generation_id, protocol=response.protocol_name, leader=response.leader
                )
        elif kind == "sync" and not response.error_code:
            answer["assignment"] = self.assignment(response.assignment)
        return answer

    def _join(self, fields: Mapping[str, Any]) -> tuple[Message, int]:
        metadata = encode_versioned(
            ConsumerProtocolSubscription(
                topics=[self.prefix + name for name in fields["topics"]],
                owned_partitions=[
                    ConsumerProtocolSubscription.TopicPartition(topic=self.prefix + name, partitions=each)
                    for name, each in fields["owned"].items()
                ],
            ),
            OWNED_SINCE,
        )
        request = JoinGroupRequest(
            group_id=self.prefix,
            session_timeout_ms=fields.get("session", CLASSIC_SESSION_MS),
            rebalance_timeout_ms=fields.get("timeout", REBALANCE_MS),
            member_id=fields["member"],
            group_instance_id=fields.get("instance"),
            protocol_type=fields.get("type", "consumer"),
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name in fields["protocols"]
            ],
        )
        return request, fields["version"]

    def _sync(self, fields: Mapping[str, Any], protocol: str) -> tuple[Message, int]:
        request = SyncGroupRequest(
            group_id=self.prefix,
            generation_id=fields["generation"],
            member_id=fields["member"],
            group_instance_id=fields.get("instance"),
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=self._encoded(share))
                for member_id, share in fields["assignments"].items()
            ],
        )
        return request, 5

    def _stay(self, fields: Mapping[str, Any]) -> tuple[Message, int]:
        request = HeartbeatRequest(
            group_id=self.prefix,
            generation_id=fields["generation"],
            member_id=fields["member"],
            group_instance_id=fields.get("instance"),
        )
        return request, 4

    def _leave(self, fields: Mapping[str, Any]) -> tuple[Message, int]:
        members = [
            LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance)
            for member_id, instance in fields["members"]
        ]
        return LeaveGroupRequest(group_id=self.prefix, members=members), 5

    def _encoded(self, share: Mapping[str, list[int]]) -> bytes:
        topics = [
            ConsumerProtocolAssignment.TopicPartition(topic=self.prefix + name, partitions=each)
            for name, each in share.items()
        ]
        return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=topics), 1)

    def assignment(self, data: bytes) -> Partitions:
        """Returns what a classic member is assigned."""
        if not data:
            return {}
        _, message = decode_versioned(ConsumerProtocolAssignment, bytes(data))
        return dict(
            sorted(
                (each.topic.removeprefix(self.prefix), sorted(each.partitions)) for each in message.assigned_partitions
            )
        )

    def describe_any(self) -> dict[str, Any]:
        """Describes the group as what it is: a consumer group with the kinds of its members, or a classic one."""
        (found,) = self.client.ask(ConsumerGroupDescribeRequest(group_ids=[self.prefix]), 1).groups
        if not found.error_code:
            description = self.describe()
            for member in found.members:
                description["members"][member.member_id]["type"] = member.member_type
            return description
        (group,) = self.client.ask(DescribeGroupsRequest(groups=[self.prefix]), 6).groups
        is_stable = group.group_state == "Stable"
        return {
            "state": group.group_state,
            "protocol": group.protocol_data,
            "classic": {
                member.member_id: self.assignment(member.member_assignment) if is_stable else {}
                for member in sorted(group.members, key=lambda each: each.member_id)
            },
        }

    # --- offsets, deletion, settings ----------------------------------------------------------------------------

    def commit(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Commits offsets by topic and partition; returns the errors."""
        topics = [
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=self.prefix + name,
                topic_id=self._ids.get(name, UNKNOWN_TOPIC),
                partitions=[
                    OffsetCommitRequest.OffsetCommitRequestPartition(
                        partition_index=int(each), committed_offset=offset, committed_metadata=""
                    )
                    for each, offset in offsets.items()
                ],
            )
            for name, offsets in fields["offsets"].items()
        ]
        request = OffsetCommitRequest(
            group_id=self.prefix,
            generation_id_or_member_epoch=fields["epoch"],
            member_id=fields["member"],
            group_instance_id=fields.get("instance"),
            topics=topics,
        )
        response = self.client.ask(request, fields.get("version", 9))
        return {"errors": sorted({each.error_code for topic in response.topics for each in topic.partitions})}

    def fetch(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Fetches all offsets of the group."""
        asked = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=self.prefix, member_id=fields["member"], member_epoch=fields["epoch"], topics=None
        )
        (group,) = self.client.ask(OffsetFetchRequest(groups=[asked]), 9).groups
        offsets = {
            topic.name.removeprefix(self.prefix): {
                str(each.partition_index): each.committed_offset
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            }
            for topic in sorted(group.topics, key=lambda each: each.name)
        }
        return {"error": group.error_code, "offsets": offsets}

    def delete(self) -> dict[str, Any]:
        (result,) = self.client.ask(DeleteGroupsRequest(groups_names=[self.prefix]), 2).results
        return {"error": result.error_code}

    def configure(self, settings: Mapping[str, str]) -> None:
        """Gives the group settings of its own."""
        changes = [
            IncrementalAlterConfigsRequest.AlterableConfig(name=name, value=text) for name, text in settings.items()
        ]
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=ConfigResourceType.GROUP, resource_name=self.prefix, configs=changes
        )
        (answer,) = self.client.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
        assert answer.error_code == 0, answer.error_message
