"""Records what a broker of Apache Kafka answers to random heartbeats of one group: the scripts in tests/vectors.

    python -m tests.broker.coordinator.group.consumer.recorder HOST:PORT KIND SCRIPTS > FILE

FILE is tests/vectors/consumer_groups/KIND.jsonl. The kinds are in KINDS. The broker is a new one of release 4.4.0 with

    group.consumer.assignors=range,uniform
    group.consumer.assignment.interval.ms=0 (of "intervals": 1000)
    group.consumer.min.assignment.interval.ms=0
    group.consumer.min.session.timeout.ms=1000
    group.consumer.heartbeat.interval.ms=500
    group.consumer.min.heartbeat.interval.ms=500

Each line is a script: `topics` are the partitions by topic before it begins, `steps` are

    ["beat", request, response]     a heartbeat; null fields are left out; "error" 0 has "epoch" and "assignment"
    ["resolved"]                    what the last heartbeat asked to be resolved has been
    ["partitions", topic, count]    the topic has so many partitions now; it is a new one if it had none
    ["deleted", topic]
    ["wait", ms]                    all other steps take no time
    ["described", description]      the group's state, epochs and members

Names of topics are recorded in the place of their ids, and without the prefix that each script has on the broker. An
expression begins with {}, which stands for the prefix.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.coordinator.group.consumer.wire_group import REBALANCE_MS, WireGroup
from tests.wire.blocking_client import Client

TOPICS = ("foo", "bar", "baz")
MISSING = "missing"
RACKS = ("r", "s")
REGEXES = ("{}f.*", "{}ba.", "{}.*", "")
BEHIND_S = 1.0
RESOLVED_S = 0.15
LOADED_S = 5
AT_ONCE = 8
"""Scripts that are recorded at the same time, unless they have expressions: groups look again for what these match if
there is a new topic of any script.
"""
INTERVAL_MS = 1000
REGEX_PAUSE_MS = 10_500
"""After so long a group looks for new topics again."""
MOST_REGEX_PAUSES = 3
"""No session ends meanwhile."""
SHORT_SESSION_MS, SHORT_REBALANCE_MS, STEP_MS = 3500, 2500, 1000
"""Of the kind "timeouts". Nothing falls due within half a second of a step."""


class Recorder:
    """Records one script: everything, at random. The kinds below have more of something."""

    STEPS = 30
    CLIENTS = 5
    STATIC = 0.4
    TOPICS_CHANGE: float = 0.03
    STAYS = 0.8
    """Shares: clients that are static, steps that change topics, heartbeats of members that stay."""
    RACK = 0.1
    HAS_REGEX = True
    FINDS_NEW_TOPICS = False
    """Whether the script waits until a group looks for new topics."""
    TIME_PASSES: float = 0
    REBALANCE_MS = REBALANCE_MS

    def __init__(self, group: WireGroup, seed: int) -> None:
        self._group = group
        self._random = Random(seed)
        self._members: dict[str, dict[str, Any]] = {}
        """By member id: the epoch, the instance and the partitions of each client."""
        self._steps: list[list[Any]] = []
        self._born = 0
        self._has_regex = False
        self._first_counts: dict[str, int] = {}

    def script(self) -> dict[str, Any]:
        random = self._random
        counts = {name: random.randint(1, 6) for name in random.sample(TOPICS, random.randint(2, 3))}
        self._begin(counts)
        while len(self._steps) < self.STEPS:
            if not self._members or (random.random() < 0.12 and len(self._members) < self.CLIENTS):
                self._born += 1
                instance = f"i{random.randint(1, 4)}" if random.random() < self.STATIC else None
                self._members[f"m{random.randint(0, 99)}-{self._born}"] = {"epoch": 0, "i": instance, "owned": {}}
            deed = random.random()
            if deed < self.TIME_PASSES:
                self._pass_time()
            elif deed < self.TIME_PASSES + self.TOPICS_CHANGE:
                self._change_topics(counts)
            elif deed < self.TIME_PASSES + self.TOPICS_CHANGE + 0.06:
                self._describe()
            else:
                self._beat(random.choice(list(self._members)))
        self._describe()
        return {"topics": self._first_counts, "steps": self._steps}

    def _begin(self, counts: Mapping[str, int]) -> None:
        self._group.create_topics(counts)
        self._first_counts = dict(sorted(counts.items()))

    # --- topics and time ----------------------------------------------------------------------------------------

    def _change_topics(self, counts: dict[str, int]) -> None:
        random = self._random
        name = random.choice(TOPICS)
        if name not in counts:
            if self._has_regex and not self.FINDS_NEW_TOPICS:
                return  # When the broker looks for new topics is a matter of its clock.
            counts[name] = random.randint(1, 6)
        elif random.random() < 0.3:
            del counts[name]
            self._group.delete_topic(name)
            self._steps.append(["deleted", name])
            return
        else:
            counts[name] += 1
        self._group.add_partitions(name, counts[name])
        self._steps.append(["partitions", name, counts[name]])
        if self._has_regex and self.FINDS_NEW_TOPICS:
            self._wait(REGEX_PAUSE_MS)

    def _pass_time(self) -> None:
        raise NotImplementedError

    def _wait(self, wait_ms: int) -> None:
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
            self._join(fields)
        elif deed < self.STAYS:
            self._stay(fields, known)
        else:
            fields["epoch"] = random.choice((-1, -2)) if known["i"] is not None else -1
            if random.random() < 0.1:
                fields["instance"] = "i1"
        response = self._group.beat(fields)
        self._steps.append(["beat", fields, response])
        self._has_regex |= bool(fields.get("regex"))
        if self._has_regex and not response["error"]:
            time.sleep(RESOLVED_S)
            self._steps.append(["resolved"])
        self._learn(member_id, fields["epoch"], response)

    def _join(self, fields: dict[str, Any]) -> None:
        random = self._random
        fields.update(epoch=0, timeout=self.REBALANCE_MS, topics=self._subscription(), owned={})
        if random.random() < 0.3 and self.HAS_REGEX:
            fields["regex"] = random.choice(REGEXES)
        if random.random() < 0.2:
            fields["assignor"] = "range"
        if random.random() < self.RACK:
            fields["rack"] = random.choice(RACKS)

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
        if random.random() < 0.1 and self.HAS_REGEX:
            fields["regex"] = random.choice(REGEXES)
        if random.random() < 0.1:
            fields.update(timeout=self.REBALANCE_MS, topics=self._subscription(), owned=known["owned"])
        if random.random() < 0.05:
            fields["instance"] = random.choice(("i9", "i1"))

    def _subscription(self) -> list[str]:
        return self._random.sample((*TOPICS, MISSING), self._random.randint(1, 3))

    def _learn(self, member_id: str, epoch: int, response: dict[str, Any]) -> None:
        known = self._members[member_id]
        if response["error"]:
            if response["error"] != ErrorCode.UNRELEASED_INSTANCE_ID:
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
        self._steps.append(["described", self._group.describe()])


class Intervals(Recorder):
    """The target is not computed with every change."""

    TOPICS_CHANGE = 0
    TIME_PASSES = 0.03
    HAS_REGEX = False

    def _pass_time(self) -> None:
        self._wait(INTERVAL_MS + INTERVAL_MS // 10)


class Fences(Recorder):
    """Epochs of the future, of the past and of strangers, and some that are none."""

    HAS_REGEX = False

    def _stay(self, fields: dict[str, Any], known: dict[str, Any]) -> None:
        super()._stay(fields, known)
        random = self._random
        if random.random() < 0.5:
            near = (known["epoch"] + each for each in (-2, -1, 1, 7))
            fields["epoch"] = random.choice((*near, 0, 1, -3, -(2**31), 2**31 - 1))
        if random.random() < 0.15:
            fields["member"] = random.choice(("stranger", "", *self._members))


class LostResponses(Recorder):
    """Clients that have not got the response send the same again, or what they do next."""

    HAS_REGEX = False

    def _learn(self, member_id: str, epoch: int, response: dict[str, Any]) -> None:
        if response["error"] or self._random.random() < 0.6:
            super()._learn(member_id, epoch, response)


class Statics(Recorder):
    """Static members that leave for a while, come back, and meet rivals."""

    STATIC = 0.9
    STAYS = 0.6
    HAS_REGEX = False


class Racks(Recorder):
    """Members in racks, which they change."""

    RACK = 0.8
    HAS_REGEX = False

    def _stay(self, fields: dict[str, Any], known: dict[str, Any]) -> None:
        super()._stay(fields, known)
        if self._random.random() < 0.4:
            fields["rack"] = self._random.choice((*RACKS, ""))


class Topics(Recorder):
    """Topics that are created, deleted and created again, and get partitions."""

    TOPICS_CHANGE = 0.25
    HAS_REGEX = False


class Regexes(Recorder):
    """New topics under expressions."""

    STEPS = 25
    TOPICS_CHANGE = 0.08
    FINDS_NEW_TOPICS = True

    def _join(self, fields: dict[str, Any]) -> None:
        super()._join(fields)
        if self._random.random() < 0.7:
            fields.update(topics=[], regex=self._random.choice(REGEXES[:-1]))

    def _change_topics(self, counts: dict[str, int]) -> None:
        if sum(step[0] == "wait" for step in self._steps) < MOST_REGEX_PAUSES:
            super()._change_topics(counts)


class Timeouts(Recorder):
    """Members that are silent, and members that do not give up in time what they must."""

    STEPS = 45
    REBALANCE_MS = SHORT_REBALANCE_MS
    TIME_PASSES = 0.3
    TOPICS_CHANGE = 0
    HAS_REGEX = False

    def _begin(self, counts: Mapping[str, int]) -> None:
        super()._begin(counts)
        self._group.configure({"consumer.session.timeout.ms": str(SHORT_SESSION_MS)})
        time.sleep(BEHIND_S)
        self._end_s = time.monotonic()

    def _pass_time(self) -> None:
        self._end_s = max(self._end_s + STEP_MS / 1000, time.monotonic())
        time.sleep(self._end_s - time.monotonic())
        self._steps.append(["wait", STEP_MS])

    def _learn(self, member_id: str, epoch: int, response: dict[str, Any]) -> None:
        known = self._members[member_id]
        had = known["owned"]
        super()._learn(member_id, epoch, response)
        if not response["error"] and epoch > 0 and self._random.random() < 0.5:
            known["owned"] = had


KINDS: Mapping[str, type[Recorder]] = {
    "at_once": Recorder,
    "intervals": Intervals,
    "fences": Fences,
    "lost_responses": LostResponses,
    "statics": Statics,
    "racks": Racks,
    "topics": Topics,
    "regexes": Regexes,
    "timeouts": Timeouts,
}
"""By the file in tests/vectors/consumer_groups."""


def until_ready(bootstrap: str) -> None:
    """Waits until the broker coordinates groups."""
    with Client(bootstrap) as client:
        while client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["warm"]), 4).coordinators[0].error_code:
            time.sleep(0.1)


def main(bootstrap: str, kind: str, scripts: str) -> None:
    until_ready(bootstrap)
    time.sleep(LOADED_S)
    begun_s = int(time.time())

    def recorded(seed: int) -> dict[str, Any]:
        with Client(bootstrap) as client:
            return KINDS[kind](WireGroup(client, f"{kind}{seed}-{begun_s}-", BEHIND_S), seed).script()

    with ThreadPoolExecutor(1 if KINDS[kind].HAS_REGEX else AT_ONCE) as pool:
        for script in pool.map(recorded, range(int(scripts))):
            print(json.dumps(script, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
