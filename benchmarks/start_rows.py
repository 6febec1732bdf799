"""Rows of starts with much to do: ten thousand logs after a kill, two hundred thousand committed offsets.

All dirty pages are written before a measured start, so that it waits only for its own syncs. If strace is installed,
one more start of each Odradek, which strace slows down, counts fsync and fdatasync up to the first response.
"""

from __future__ import annotations

import os
import shutil
import time

from benchmarks import wire
from benchmarks.contestants import Contestant, Odradek
from benchmarks.group_load import until_coordinator
from benchmarks.measurement import LESS, Metric, Reading, Row
from benchmarks.processes import cpu_seconds
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from odradek.protocol.messages.produce import ProduceRequest, ProduceResponse
from odradek.protocol.records import Record, build_batch

PARTITIONS_OF_A_TOPIC = 500
PARTITIONS_OF_A_GROUP = 100
COMMIT_VERSION, FETCH_VERSION, PRODUCE_VERSION = 7, 7, 7
TOPIC = "committed"
LOADING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
GIVE_UP_S = 120


class StartAfterKill(Row):
    """The first and the second start. Each partition has a record that was appended since the previous start."""

    name = "start after a kill"
    needs_fresh_broker = True

    def __init__(self, partitions: int) -> None:
        self._topics = -(-partitions // PARTITIONS_OF_A_TOPIC)
        self.partitions = self._topics * PARTITIONS_OF_A_TOPIC
        count = f"{self.partitions:,d} partitions, killed"
        self.metrics = (
            Metric(f"{count}: until Metadata", "s", LESS),
            Metric(f"{count} again: until Metadata", "s", LESS),
            *fsyncs_of(f"{count} again"),
        )

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        contestant.start()
        for number in range(self._topics):
            wire.create_topic(contestant.port, f"many-{number}", PARTITIONS_OF_A_TOPIC)
        values = []
        for _ in range(2):
            self._append(contestant.port)
            contestant.kill()
            values.append(started(contestant, self.partitions))
        if len(self.metrics) > len(values) and isinstance(contestant, Odradek):
            self._append(contestant.port)
            contestant.kill()
            values.append(Reading(fsyncs_of_start(contestant)))
        return {metric.name: value for metric, value in zip(self.metrics, values, strict=False)}

    def _append(self, port: int) -> None:
        """Appends at least one record to each partition. Raises RuntimeError."""
        batch = bytes(build_batch([Record(offset=0, timestamp=int(time.time() * 1000), key=b"k", value=bytes(100))]))
        data = [ProduceRequest.PartitionProduceData(index=i, records=batch) for i in range(PARTITIONS_OF_A_TOPIC)]
        for number in range(self._topics):
            topics = [ProduceRequest.TopicProduceData(name=f"many-{number}", partition_data=data)]
            request = ProduceRequest(acks=1, timeout_ms=60_000, topic_data=topics)
            until_accepted(port, request)


class StartWithOffsets(Row):
    """The first and the second start on data of a clean shutdown."""

    name = "start with offsets"
    needs_fresh_broker = True

    def __init__(self, offsets: int) -> None:
        self._groups = -(-offsets // PARTITIONS_OF_A_GROUP)
        count = f"{self._groups * PARTITIONS_OF_A_GROUP:,d} offsets"
        self.metrics = (
            Metric(f"{count}, first start: until Metadata", "s", LESS),
            Metric(f"{count}, first start: until all are served", "s", LESS),
            Metric(f"{count}, second start: until Metadata", "s", LESS),
            Metric(f"{count}, second start: until all are served", "s", LESS),
            *fsyncs_of(count),
        )

    def measure(self, contestant: Contestant) -> dict[str, Reading]:
        contestant.start()
        wire.create_topic(contestant.port, TOPIC, PARTITIONS_OF_A_GROUP)
        until_coordinator(contestant.port)
        self._commit(contestant.port)
        values = []
        for _ in range(2):
            contestant.stop()
            begin = time.perf_counter()
            values.append(started(contestant, self._groups * PARTITIONS_OF_A_GROUP))
            self._until_served(contestant.port)
            values.append(Reading(time.perf_counter() - begin))
        if len(self.metrics) > len(values) and isinstance(contestant, Odradek):
            contestant.stop()
            values.append(Reading(fsyncs_of_start(contestant)))
        return {metric.name: value for metric, value in zip(self.metrics, values, strict=False)}

    def _commit(self, port: int) -> None:
        """Commits the offsets. Raises RuntimeError."""
        each = OffsetCommitRequest.OffsetCommitRequestPartition
        offsets = [
            each(partition_index=i, committed_offset=i, committed_metadata="") for i in range(PARTITIONS_OF_A_GROUP)
        ]
        topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=offsets)]
        with wire.connected(port) as connection:
            for number in range(self._groups):
                request = OffsetCommitRequest(group_id=f"group-{number}", topics=topics)
                answer = wire.call_on(connection, request, OffsetCommitResponse, COMMIT_VERSION)
                errors = wire.errors_in(answer)
                if errors:
                    raise RuntimeError(f"commit refused: {errors}")

    def _until_served(self, port: int) -> None:
        """Waits for every tenth group; together these use all partitions of the internal topic. Raises TimeoutError."""
        wanted = OffsetFetchRequest.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[PARTITIONS_OF_A_GROUP - 1])
        give_up = time.monotonic() + GIVE_UP_S
        with wire.connected(port) as connection:
            for number in range(0, self._groups, 10):
                request = OffsetFetchRequest(group_id=f"group-{number}", topics=[wanted])
                while True:
                    answer = wire.call_on(connection, request, OffsetFetchResponse, FETCH_VERSION)
                    errors = wire.errors_in(answer)
                    if not errors:
                        break
                    if not errors <= LOADING or time.monotonic() > give_up:
                        raise TimeoutError(f"the offsets of group-{number} are not served: {errors}")
                    time.sleep(0.005)
                if answer.topics[0].partitions[0].committed_offset != PARTITIONS_OF_A_GROUP - 1:
                    raise RuntimeError(f"the offsets of group-{number} are lost")


def until_accepted(port: int, request: ProduceRequest) -> None:
    """Retries until all partitions accept at once: Kafka elects leaders before they know it. Raises RuntimeError."""
    give_up = time.monotonic() + GIVE_UP_S
    while True:
        errors = wire.errors_in(wire.call(port, request, ProduceResponse, PRODUCE_VERSION, GIVE_UP_S))
        if not errors:
            return
        if time.monotonic() > give_up:
            raise RuntimeError(f"records refused: {errors}")
        time.sleep(0.1)


def started(contestant: Contestant, operations: int) -> Reading:
    """Measures a start and its CPU time; `operations` is the number of items that it loads."""
    os.sync()
    seconds = contestant.start()
    return Reading(seconds, cpu_seconds(contestant.pid), seconds, operations)


def fsyncs_of(what: str) -> list[Metric]:
    """Returns the metric if it can be measured."""
    return [Metric(f"{what}: fsyncs until Metadata", "", LESS, None)] if shutil.which("strace") else []


def fsyncs_of_start(contestant: Odradek) -> int:
    """Starts the broker under strace; returns the number of syncs."""
    trace = contestant.directory / "fsyncs"
    contestant.tracer = ("strace", "-f", "-qq", "-e", "trace=fsync,fdatasync", "-o", str(trace))
    try:
        contestant.start()
        return sum("sync(" in line for line in trace.read_text().splitlines())
    finally:
        contestant.tracer = ()


def start_rows(scale: float) -> list[Row]:
    """Returns the rows in the order of the table. `scale` is the fraction of all partitions and offsets."""
    return [StartAfterKill(int(10_000 * scale)), StartWithOffsets(int(200_000 * scale))]
