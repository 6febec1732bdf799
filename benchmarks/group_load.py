"""A client with many group members, each on its own connection, in one small process.

    python -m benchmarks.group_load members PORT GROUPS MEMBERS
    python -m benchmarks.group_load consumers PORT MEMBERS CHANGES
    python -m benchmarks.group_load commits PORT MEMBERS PARTITIONS COMMITS
    python -m benchmarks.group_load consumer-commits PORT MEMBERS PARTITIONS COMMITS

members: MEMBERS join each of GROUPS groups at once. Prints {"stable_ms": ...} when every group is stable with all
members. Then each sends heartbeats as seldom as Kafka's clients ({"calm": 1} once all do), until a line arrives on
stdin. Then all leave, and {"left_ms": ...} is printed when all have received their responses.

consumers: the same with MEMBERS of one group of the consumer protocol, and as many partitions of TOPIC, which exists.
After the first line on stdin one member leaves and another one joins, CHANGES times, with a pause after each;
{"changed_ms": ...} is the median of the times until the new one has a partition. All leave after the second line.

commits, consumer-commits: MEMBERS groups of one member each commit offsets of PARTITIONS partitions, one commit after
the other, COMMITS in total. Prints {"measuring": 1} after a warm-up of a tenth as many, and {"commits": ...,
"seconds": ...}.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Sequence
from uuid import UUID

from benchmarks import wire
from benchmarks.group_members import HEARTBEAT, ClassicMember, Client, ConsumerMember, GroupMember, decoded, expect
from benchmarks.parked import raise_open_files
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.protocol.messages.offsets import OffsetCommitResponse

FIND = 2
EAGER_HEARTBEAT_S = 0.25
"""Until all groups are stable, so that a long interval does not hide the broker's time."""
NEWCOMER_HEARTBEAT_S = 0.02
BETWEEN_CHANGES_S = 1.5
"""More than the assignment interval, so that each change is assigned as soon as it is known."""
METADATA_WITH_IDS = 12
TOPIC = "committed"


def until_coordinator(port: int) -> None:
    """Makes the broker create its internal topic, and waits until it serves groups."""
    for _ in range(600):
        request = FindCoordinatorRequest(key="any", key_type=0)
        if not wire.call(port, request, FindCoordinatorResponse, FIND).error_code:
            heartbeat = HeartbeatRequest(group_id="any", generation_id=1, member_id="nobody")
            answer = wire.call(port, heartbeat, HeartbeatResponse, HEARTBEAT)
            if answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                return
        time.sleep(0.05)
    raise TimeoutError("no group coordinator")


class Crowd:
    """Active members: they join, then send a heartbeat every `pause_s`.

    `is_stable` is set once all are settled, `is_calm` once all pause for as long as Kafka's clients.
    """

    def __init__(self, members: Sequence[GroupMember]) -> None:
        self.pause_s, self._long_s = EAGER_HEARTBEAT_S, members[0].heartbeat_s
        self.is_stable, self.is_calm = asyncio.Event(), asyncio.Event()
        self._unstable, self._eager = set(members), set(members)
        self._leaving = asyncio.Event()
        parts = [number / len(members) for number in range(len(members))]
        self._lives = {
            member: asyncio.create_task(self._live(member, part)) for member, part in zip(members, parts, strict=True)
        }

    @property
    def members(self) -> list[GroupMember]:
        return list(self._lives)

    def calm_down(self) -> None:
        self.pause_s = self._long_s

    async def _live(self, member: GroupMember, part: float) -> None:
        await member.join()
        await self._stay(member, part)

    async def _stay(self, member: GroupMember, part: float = 1.0) -> None:
        """The first pause is a part of the others, so that the heartbeats are spread."""
        while not self._leaving.is_set():
            self._look_at(member)
            await asyncio.sleep(self.pause_s * part)
            part = 1.0
            await member.heartbeat()

    def _look_at(self, member: GroupMember) -> None:
        (self._unstable.discard if member.is_settled else self._unstable.add)(member)
        if not self._unstable:
            self.is_stable.set()
        if self.pause_s == self._long_s:
            self._eager.discard(member)
            if not self._eager:
                self.is_calm.set()

    async def until(self, event: asyncio.Event) -> None:
        """Waits for the event. Raises the exception of a member that fails meanwhile."""
        waiting = asyncio.create_task(event.wait())
        done, _ = await asyncio.wait([waiting, *self._lives.values()], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def replace(self, newcomer: GroupMember) -> float:
        """The first member leaves, and the newcomer joins. Returns the ms until this one is settled."""
        leaver = self.members[0]
        self._lives.pop(leaver).cancel()
        frame = leaver.leave_frame()
        begin = time.perf_counter()
        await leaver.leave(frame)
        await newcomer.join()
        while not newcomer.is_settled:
            await asyncio.sleep(NEWCOMER_HEARTBEAT_S)
            await newcomer.heartbeat()
        took_ms = (time.perf_counter() - begin) * 1000
        self._lives[newcomer] = asyncio.create_task(self._stay(newcomer))
        return took_ms

    async def end(self) -> None:
        """Waits for the last heartbeats. Raises the exception of a member that failed."""
        self._leaving.set()
        await asyncio.gather(*self._lives.values())


async def settled_crowd(everyone: Sequence[GroupMember]) -> Crowd:
    """Returns a crowd that has joined, and whose heartbeats are seldom."""
    begin = time.perf_counter()
    crowd = Crowd(everyone)
    await crowd.until(crowd.is_stable)
    report(stable_ms=(time.perf_counter() - begin) * 1000)
    crowd.calm_down()
    await crowd.until(crowd.is_calm)
    report(calm=1)
    return crowd


async def leave(crowd: Crowd) -> None:
    await crowd.end()
    everyone = crowd.members
    frames = [member.leave_frame() for member in everyone]
    begin = time.perf_counter()
    await asyncio.gather(*(member.leave(frame) for member, frame in zip(everyone, frames, strict=True)))
    report(left_ms=(time.perf_counter() - begin) * 1000)


async def next_line() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def members(port: int, groups: int, size: int) -> None:
    everyone = [
        ClassicMember(await Client.connect(port), f"group-{number % groups}", size) for number in range(groups * size)
    ]
    crowd = await settled_crowd(everyone)
    await next_line()
    await leave(crowd)


async def consumers(port: int, size: int, changes: int) -> None:
    async def member() -> ConsumerMember:
        return ConsumerMember(await Client.connect(port), "consumers", TOPIC, 1)

    crowd = await settled_crowd([await member() for _ in range(size)])
    await next_line()
    took_ms = []
    for _ in range(changes):
        took_ms.append(await crowd.replace(await member()))
        await asyncio.sleep(BETWEEN_CHANGES_S)
    report(changed_ms=statistics.median(took_ms))
    await next_line()
    await leave(crowd)


async def commits(port: int, kind: str, size: int, partitions: int, count: int) -> None:
    everyone: list[GroupMember] = []
    for number in range(size):
        client, group = await Client.connect(port), f"committing-{kind}-{number}"
        of_kind = (
            ConsumerMember(client, group, TOPIC, partitions) if kind == "consumer" else ClassicMember(client, group, 1)
        )
        everyone.append(of_kind)
        await of_kind.join()
        while not of_kind.is_settled:
            await of_kind.heartbeat()
    topic_id = id_of_topic(port)
    frames = [member.commit_frame(TOPIC, topic_id, partitions) for member in everyone]
    await commit(everyone, frames, count // 10)
    report(measuring=1)
    begin = time.perf_counter()
    await commit(everyone, frames, count)
    report(commits=count, seconds=time.perf_counter() - begin)


def id_of_topic(port: int) -> UUID:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False
    )
    return wire.call(port, request, MetadataResponse, METADATA_WITH_IDS).topics[0].topic_id


async def commit(everyone: Sequence[GroupMember], frames: Sequence[bytes], count: int) -> None:
    left = count

    async def one(member: GroupMember, frame: bytes) -> None:
        nonlocal left
        first = None
        while left > 0:
            left -= 1
            answer = await member.client.send(frame)
            if first is None:
                expect_all_committed(answer, member.commit_version)
                first = answer
            elif answer != first:
                raise RuntimeError("a commit got a different response")

    await asyncio.gather(*(one(member, frame) for member, frame in zip(everyone, frames, strict=True)))


def expect_all_committed(answer: bytes, version: int) -> None:
    for topic in decoded(answer, OffsetCommitResponse, version).topics:
        for partition in topic.partitions:
            expect(partition.error_code)


def report(**values: float) -> None:
    print(json.dumps(values), flush=True)


def main() -> None:
    what, port, *sizes = sys.argv[1], *map(int, sys.argv[2:])
    raise_open_files()
    until_coordinator(port)
    match what:
        case "members":
            asyncio.run(members(port, *sizes))
        case "consumers":
            asyncio.run(consumers(port, *sizes))
        case "commits":
            asyncio.run(commits(port, "classic", *sizes))
        case "consumer-commits":
            asyncio.run(commits(port, "consumer", *sizes))


if __name__ == "__main__":
    main()
