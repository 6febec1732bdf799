"""Records what a broker of Apache Kafka answers to random heartbeats of one group: the scripts in tests/vectors.

    python -m tests.broker.coordinator.group.consumer.recorder HOST:PORT SCRIPTS [INTERVAL_MS] > FILE

FILE is tests/vectors/consumer_groups/at_once.jsonl without an interval, intervals.jsonl with one of 1000 ms. The broker
is a new one of release 4.4.0 with

    group.consumer.assignors=range,uniform
    group.consumer.assignment.interval.ms=0 (or the interval)
    group.consumer.min.assignment.interval.ms=0

Each line is a script: `topics` are the partitions by topic before it begins, `steps` are

    ["beat", request, response]     a heartbeat; null fields are left out; "error" 0 has "epoch" and "assignment"
    ["resolved"]                    what the last heartbeat asked to be resolved has been
    ["partitions", topic, count]    the topic has so many partitions now; it is a new one if it had none
    ["deleted", topic]
    ["wait", ms]                    only with an interval; all other steps take no time then
    ["described", description]      the group's state, epochs and members

Names of topics are recorded in the place of their ids, and without the prefix that each script has on the broker. An
expression begins with {}, which stands for the prefix.
"""

from __future__ import annotations

import json
import sys
import time
from random import Random
from typing import Any
from uuid import UUID

from odradek.protocol.messages.cluster import DescribeClusterRequest
from odradek.protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.topics import CreatePartitionsRequest, DeleteTopicsRequest
from tests.wire.blocking_client import Client

STEPS = 30
TOPICS = ("foo", "bar", "baz")
MISSING = "missing"
REGEXES = ("{}f.*", "{}ba.", "{}.*", "")
METADATA_S = 0.6
RESOLVED_S = 0.12


class Recorder:
    """Records one script."""

    def __init__(self, client: Client, seed: int, prefix: str, interval_ms: int) -> None:
        self._client = client
        self._interval_ms = interval_ms
        self._random = Random(seed)
        self._prefix = prefix
        self._ids: dict[str, UUID] = {}
        self._names: dict[UUID, str] = {}
        self._members: dict[str, dict[str, Any]] = {}
        """By member id: the epoch, the instance and the partitions of each client."""
        self._steps: list[list[Any]] = []
        self._born = 0
        self._has_regex = False

    def script(self) -> dict[str, Any]:
        random = self._random
        counts = {name: random.randint(1, 6) for name in random.sample(TOPICS, random.randint(2, 3))}
        for name, count in counts.items():
            self._create(name, count)
        self._look_up()
        while len(self._steps) < STEPS:
            if not self._members or (random.random() < 0.12 and len(self._members) < 5):
                self._born += 1
                instance = f"i{random.randint(1, 4)}" if random.random() < 0.4 else None
                self._members[f"m{random.randint(0, 99)}-{self._born}"] = {"epoch": 0, "i": instance, "owned": {}}
            deed = random.random()
            if deed < 0.03 and not self._interval_ms:
                self._change_topics(counts)
            elif deed < 0.06 and self._interval_ms:
                self._wait()
            elif deed < 0.1:
                self._describe()
            else:
                self._beat(random.choice(list(self._members)))
        self._describe()
        return {"topics": self._first_counts, "steps": self._steps}

    # --- topics -------------------------------------------------------------------------------------------------

    def _create(self, name: str, count: int) -> None:
        self._client.create(self._prefix + name, count)

    def _look_up(self) -> None:
        """Waits until the broker knows the topics."""
        time.sleep(METADATA_S)
        found = self._client.ask(MetadataRequest(topics=None), 12)
        mine = {one.name: one for one in found.topics if one.name.startswith(self._prefix)}
        for name, one in mine.items():
            self._ids[name.removeprefix(self._prefix)] = one.topic_id
            self._names[one.topic_id] = name.removeprefix(self._prefix)
        if not self._steps:
            self._first_counts = {
                name.removeprefix(self._prefix): len(one.partitions) for name, one in sorted(mine.items())
            }

    def _change_topics(self, counts: dict[str, int]) -> None:
        random = self._random
        name = random.choice(TOPICS)
        if name not in counts:
            if self._has_regex:
                return  # When the broker looks for new topics is a matter of its clock.
            counts[name] = random.randint(1, 6)
            self._create(name, counts[name])
        elif random.random() < 0.3:
            del counts[name]
            response = self._client.ask(DeleteTopicsRequest(topic_names=[self._prefix + name], timeout_ms=10_000), 4)
            assert response.responses[0].error_code == 0
            self._steps.append(["deleted", name])
            time.sleep(METADATA_S)
            return
        else:
            counts[name] += 1
            topic = CreatePartitionsRequest.CreatePartitionsTopic(
                name=self._prefix + name, count=counts[name], assignments=None
            )
            response = self._client.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=10_000), 2)
            assert response.results[0].error_code == 0
        self._steps.append(["partitions", name, counts[name]])
        self._look_up()

    def _wait(self) -> None:
        wait_ms = self._interval_ms + self._interval_ms // 10
        time.sleep(wait_ms / 1000)
        self._steps.append(["wait", wait_ms])

    # --- requests -----------------------------------------------------------------------------------------------

    def _beat(self, member_id: str) -> None:
        random, known = self._random, self._members[member_id]
        fields: dict[str, Any] = {"member": member_id, "epoch": known["epoch"]}
        if known["i"] is not None:
            fields["instance"] = known["i"]
        deed = random.random()
        if known["epoch"] == 0 or deed < 0.05:
            fields.update(epoch=0, timeout=60_000, topics=self._subscription(), owned={})
            if random.random() < 0.3 and not self._interval_ms:
                fields["regex"] = random.choice(REGEXES)
            if random.random() < 0.2:
                fields["assignor"] = "range"
            if random.random() < 0.1:
                fields["rack"] = "r"
        elif deed < 0.8:
            self._stay(fields, known)
        else:
            fields["epoch"] = random.choice((-1, -2)) if known["i"] is not None else -1
            if random.random() < 0.1:
                fields["instance"] = "i1"
        response = self._send(fields)
        self._steps.append(["beat", fields, response])
        self._has_regex |= bool(fields.get("regex"))
        if self._has_regex and not response["error"]:
            time.sleep(RESOLVED_S)
            self._steps.append(["resolved"])
        self._learn(member_id, fields["epoch"], response)

    def _stay(self, fields: dict[str, Any], known: dict[str, Any]) -> None:
        random = self._random
        deed = random.random()
        if deed < 0.6:
            fields["owned"] = known["owned"]
        elif deed < 0.7:
            fields["owned"] = {}
        elif deed < 0.8:
            fields["epoch"] = max(known["epoch"] + random.choice((-2, -1, 1)), 1)
            if random.random() < 0.7:
                fields["owned"] = known["owned"]
        if random.random() < 0.15:
            fields["topics"] = self._subscription()
        if random.random() < 0.1 and not self._interval_ms:
            fields["regex"] = random.choice(REGEXES)
        if random.random() < 0.1:
            fields.update(timeout=60_000, topics=self._subscription(), owned=known["owned"])
        if random.random() < 0.05:
            fields["instance"] = random.choice(("i9", "i1"))

    def _subscription(self) -> list[str]:
        return self._random.sample((*TOPICS, MISSING), self._random.randint(1, 3))

    def _send(self, fields: dict[str, Any]) -> dict[str, Any]:
        owned = fields.get("owned")
        topics, regex = fields.get("topics"), fields.get("regex")
        response = self._client.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=self._prefix,
                member_id=fields["member"],
                member_epoch=fields["epoch"],
                instance_id=fields.get("instance"),
                rack_id=fields.get("rack"),
                rebalance_timeout_ms=fields.get("timeout", -1),
                subscribed_topic_names=None if topics is None else [self._prefix + name for name in topics],
                subscribed_topic_regex=None if regex is None else regex.format(self._prefix),
                server_assignor=fields.get("assignor"),
                topic_partitions=None
                if owned is None
                else [
                    ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=self._ids[name], partitions=partitions)
                    for name, partitions in owned.items()
                ],
            ),
            1,
        )
        if response.error_code:
            return {"error": response.error_code}
        assignment = response.assignment
        return {
            "error": 0,
            "epoch": response.member_epoch,
            "assignment": None if assignment is None else self._partitions(assignment.topic_partitions),
        }

    def _partitions(self, topics: Any) -> dict[str, list[int]]:
        return dict(sorted((self._names[each.topic_id], sorted(each.partitions)) for each in topics))

    def _learn(self, member_id: str, epoch: int, response: dict[str, Any]) -> None:
        known = self._members[member_id]
        if response["error"]:
            if response["error"] != 111:
                known.update(epoch=0, owned={})
            return
        if epoch >= 0:
            known["epoch"] = response["epoch"]
            known["owned"] = response["assignment"] if response["assignment"] is not None else known["owned"]
            return
        known.update(epoch=0, owned={})
        if epoch == -1 or self._random.random() < 0.5:
            del self._members[member_id]
            if epoch == -2:
                self._members[member_id + "x"] = known

    def _describe(self) -> None:
        response = self._client.ask(ConsumerGroupDescribeRequest(group_ids=[self._prefix]), 1)
        (group,) = response.groups
        description: dict[str, Any] = {"error": group.error_code}
        if not group.error_code:
            description.update(
                state=group.group_state, epoch=group.group_epoch, target_epoch=group.assignment_epoch, members={}
            )
            for member in sorted(group.members, key=lambda each: each.member_id):
                description["members"][member.member_id] = {
                    "instance": member.instance_id,
                    "epoch": member.member_epoch,
                    "assignment": self._partitions(member.assignment.topic_partitions),
                    "target": self._partitions(member.target_assignment.topic_partitions),
                }
        self._steps.append(["described", description])


def main(bootstrap: str, scripts: str, interval_ms: str = "0") -> None:
    with Client(bootstrap) as client:
        client.ask(DescribeClusterRequest(), 0)
        begun_s = int(time.time())
        while client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["warm"]), 4).coordinators[0].error_code:
            time.sleep(0.5)
        time.sleep(5)
        for seed in range(int(scripts)):
            script = Recorder(client, seed, f"s{seed}-{begun_s}-", int(interval_ms)).script()
            print(json.dumps(script, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
