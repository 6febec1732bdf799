"""Records what a broker of Apache Kafka 4.4.0 answers to classic and other members of one group, in any mixture.

    python -m tests.broker.coordinator.group.consumer.migration_recorder HOST:PORT FIRST SCRIPTS > FILE

FILE is tests/vectors/consumer_groups/migrations.jsonl. FIRST is the seed of the first script. The broker is a new one
with

    group.consumer.assignors=range,uniform
    group.consumer.assignment.interval.ms=0
    group.consumer.min.assignment.interval.ms=0
    group.initial.rebalance.delay.ms=0

Each line is a script: `topics` are the partitions by topic, `steps` are

    [kind, request, answers]        requests are numbered from 0; `answers`, by number, come after this one
    ["described", description]      the group's state, epoch and members; assignments only of a Stable group

A JoinGroup or SyncGroup of a classic group may be answered after a later step. The kinds are "beat", which is a
ConsumerGroupHeartbeat as in recorder.py, "join", "sync", "stay" (Heartbeat) and "leave". Names of topics are recorded
without their prefix, and member ids as they are: the assignments depend on their order.
"""

from __future__ import annotations

import json
import select
import sys
import time
from typing import Any

from odradek.protocol.errors import ErrorCode
from tests.broker.coordinator.group.consumer.recorder import BEHIND_S, LOADED_S, TOPICS, Recorder, until_ready
from tests.broker.coordinator.group.consumer.wire_group import REBALANCE_MS, WireGroup
from tests.wire.blocking_client import Client

QUIET_S = 0.15
"""What is answered has been when nothing has come for so long."""
JOIN_VERSIONS = (3, 9)
"""Before and since a client is told its id."""
FIRST_WITH_INSTANCES = 5


class MigrationRecorder(Recorder):
    """Records one script. A client is a dict, see `_born_as`; `must` is the next request of a classic one."""

    STEPS = 45

    def __init__(self, group: WireGroup, bootstrap: str, seed: int) -> None:
        super().__init__(group, seed)
        self._bootstrap = bootstrap
        self._clients: list[dict[str, Any]] = []
        self._parked: dict[int, tuple[dict[str, Any], str, Client]] = {}
        self._numbers = 0
        self._leader = ""

    def script(self) -> dict[str, Any]:
        random = self._random
        self._begin({name: random.randint(1, 6) for name in TOPICS})
        share = random.choice((0.3, 0.5, 0.7))
        while len(self._steps) < self.STEPS:
            if len(self._steps) % 15 == 14:
                share = random.choice((0.1, 0.5, 0.9))
            if not self._clients or (len(self._clients) < self.CLIENTS and random.random() < 0.35):
                self._clients.append(self._born_as(random.random() < share))
            if random.random() < 0.06:
                self._describe()
                continue
            free = [each for each in self._clients if not self._is_parked(each)]
            eager = [each for each in free if each["must"] != "stay"]
            if free:
                self._act(random.choice(eager if eager and random.random() < 0.6 else free))
        self._describe()
        for _, _, connection in self._parked.values():
            connection.close()
        return {"topics": self._first_counts, "steps": self._steps}

    def _born_as(self, is_classic: bool) -> dict[str, Any]:
        random = self._random
        self._born += 1
        return {
            "is_classic": is_classic,
            "id": "" if is_classic else f"m{random.randint(0, 99)}-{self._born}",
            "epoch": 0,
            "instance": f"i{random.randint(1, 3)}" if random.random() < 0.3 else None,
            "owned": {},
            "must": "join",
            "protocols": random.choice((["range"], ["range", "sticky"], ["range", "mine", "sticky"])),
            "version": random.choice(JOIN_VERSIONS),
            "topics": random.sample(TOPICS, random.randint(1, 3)),
            "is_eager": random.random() < 0.4,
        }

    def _is_parked(self, client: dict[str, Any]) -> bool:
        return any(each is client for each, _, _ in self._parked.values())

    # --- what clients do ----------------------------------------------------------------------------------------

    def _act(self, client: dict[str, Any]) -> None:
        random = self._random
        if random.random() < 0.04 and client["instance"] is not None:  # it restarts, maybe in the other protocol
            self._clients.remove(client)
            other = self._born_as(random.random() < 0.5)
            self._clients.append({**other, "instance": client["instance"], "topics": client["topics"]})
            return
        if not client["is_classic"]:
            self._act_as_consumer(client)
        elif client["must"] == "join":
            self._join_classic(client)
        elif client["must"] == "sync" and random.random() < 0.9:
            self._sync(client)
        elif random.random() < 0.12 and not (client["id"] == self._leader and self._parked):
            self._leave(client)
        elif random.random() < 0.08:
            client["topics"] = random.sample(TOPICS, random.randint(1, 3))
            self._join_classic(client)
        else:
            self._stay_classic(client)

    def _act_as_consumer(self, client: dict[str, Any]) -> None:
        random = self._random
        fields: dict[str, Any] = {"member": client["id"], "epoch": client["epoch"]}
        if client["instance"] is not None:
            fields["instance"] = client["instance"]
        if not client["epoch"]:
            fields.update(timeout=REBALANCE_MS, topics=client["topics"], owned={})
        elif random.random() < 0.15:
            fields["epoch"] = random.choice((-1, -2)) if client["instance"] is not None else -1
        elif random.random() < 0.9:
            fields["owned"] = client["owned"]
        answer = self._request("beat", fields, client)
        if answer["error"] == ErrorCode.UNRELEASED_INSTANCE_ID:
            self._clients.remove(client)
        elif answer["error"]:
            client.update(epoch=0, owned={}, must="join")
        elif fields["epoch"] < 0:
            self._clients.remove(client)
        else:
            client.update(epoch=answer["epoch"], must="stay")
            if answer["assignment"] is not None:
                client["owned"] = answer["assignment"]

    def _join_classic(self, client: dict[str, Any]) -> None:
        owned = {} if client["is_eager"] else client["owned"]
        fields = {"member": client["id"], "topics": client["topics"], "owned": owned, "version": client["version"]}
        fields["protocols"] = client["protocols"]
        if client["instance"] is not None:
            fields.update(instance=client["instance"], version=max(client["version"], FIRST_WITH_INSTANCES))
        client["owned"] = owned
        self._request("join", fields, client)

    def _sync(self, client: dict[str, Any]) -> None:
        assignments: dict[str, dict[str, list[int]]] = {}
        if client["id"] == self._leader:
            assignments = self._assigned_by_leader(client)
        fields = {"member": client["id"], "generation": client["epoch"], "assignments": assignments}
        if client["instance"] is not None:
            fields["instance"] = client["instance"]
        self._request("sync", fields, client)

    def _assigned_by_leader(self, leader: dict[str, Any]) -> dict[str, dict[str, list[int]]]:
        """Deals the partitions among the members that the leader has been told of."""
        members = sorted(leader["members"]) or [leader["id"]]
        shares: dict[str, dict[str, list[int]]] = {each: {} for each in members}
        for name, count in self._first_counts.items():
            for partition in range(count):
                shares[members[partition % len(members)]].setdefault(name, []).append(partition)
        return shares

    def _stay_classic(self, client: dict[str, Any]) -> None:
        epoch = client["epoch"]
        if self._random.random() < 0.05:
            epoch += self._random.choice((-1, 1))
        fields = {"member": client["id"], "generation": epoch}
        if client["instance"] is not None:
            fields["instance"] = client["instance"]
        self._request("stay", fields, client)

    def _leave(self, client: dict[str, Any]) -> None:
        rows = [[client["id"], client["instance"]]]
        if client["instance"] is not None and self._random.random() < 0.3:
            rows = [["", client["instance"]]]
        if self._random.random() < 0.2:
            rows.append(["stranger", self._random.choice((None, "i1"))])
        self._request("leave", {"members": rows}, client)
        self._clients.remove(client)

    # --- requests and answers -----------------------------------------------------------------------------------

    def _request(self, kind: str, fields: dict[str, Any], client: dict[str, Any]) -> dict[str, Any]:
        """Sends it, notes what is answered then, and returns its answer; an empty one if it is parked."""
        number, self._numbers = self._numbers, self._numbers + 1
        answers: dict[str, Any] = {}
        if kind == "beat":
            answers[str(number)] = self._group.beat(fields)
        else:
            connection = Client(self._bootstrap, client_id="classic")
            connection.send(*self._group.classic(kind, fields, client.get("protocol", "")))
            self._parked[number] = client, kind, connection
        fields = json.loads(json.dumps(fields))
        while ready := self._ready():
            for each in ready:
                whose, asked, connection = self._parked.pop(each)
                answers[str(each)] = self._answered(whose, asked, connection.receive())
                connection.close()
        self._steps.append([kind, fields, dict(sorted(answers.items(), key=lambda item: int(item[0])))])
        answer: dict[str, Any] = answers.get(str(number), {})
        return answer

    def _ready(self) -> list[int]:
        numbers = {connection.raw.socket: number for number, (_, _, connection) in self._parked.items()}
        found, _, _ = select.select(list(numbers), [], [], QUIET_S) if numbers else ([], [], [])
        return sorted(numbers[each] for each in found)

    def _answered(self, client: dict[str, Any], kind: str, response: Any) -> dict[str, Any]:
        answer = self._group.answered(kind, response)
        if kind == "leave":
            return answer
        error = answer["error"]
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.update(id="", must="join", owned={} if kind != "join" else client["owned"])
        elif error == ErrorCode.MEMBER_ID_REQUIRED:
            client["id"] = response.member_id
        elif error:
            client["must"] = "join"
        elif kind == "join":
            client.update(id=response.member_id, epoch=response.generation_id, protocol=response.protocol_name)
            client.update(must="sync", members=[each.member_id for each in response.members])
            self._leader = response.leader
        elif kind == "sync":
            owned = answer["assignment"]
            has_lost = any(set(kept) - set(owned.get(name, ())) for name, kept in client["owned"].items())
            client.update(owned=owned, must="join" if has_lost else "stay")
        return answer

    def _describe(self) -> None:
        """Only if the ids of all members are known."""
        if not any(kind == "join" and not client["id"] for client, kind, _ in self._parked.values()):
            self._steps.append(["described", self._group.describe_any()])


def main(bootstrap: str, first: str, scripts: str) -> None:
    until_ready(bootstrap)
    time.sleep(LOADED_S)
    begun_s = int(time.time())
    with Client(bootstrap) as client:
        for seed in range(int(first), int(first) + int(scripts)):
            group = WireGroup(client, f"s{seed}-{begun_s}-", BEHIND_S)
            script = MigrationRecorder(group, bootstrap, seed).script()
            print(json.dumps(script, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
