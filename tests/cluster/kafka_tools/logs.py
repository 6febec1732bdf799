"""Tools that look into logs: directories, offsets, deletion of records, comparison of replicas."""

from __future__ import annotations

from tests.cluster.kafka_tools.stage import Stage
from tests.cluster.kafka_tools.topics import create

LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE = "org.apache.kafka.tools.DeleteRecordsCommand"
LAG = {r"partition read-\d at offset \d+": "PARTITION"}
VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"


def logs(stage: Stage) -> None:
    create(stage, "create a topic that is read", "read", "1:2:3,2:3:1")
    stage.write("read", 0, 12)
    stage.write("read", 1, 5)
    stage.step("list the directories", LOG_DIRS, "--describe", "--topic-list", "read")
    stage.step(
        "list the directories of two brokers", LOG_DIRS, "--describe", "--broker-list", "1,2", "--topic-list", "read"
    )
    stage.step("list the directories of a broker that is not there", LOG_DIRS, "--describe", "--broker-list", "1,9")
    stage.step("list a topic that no directory has", LOG_DIRS, "--describe", "--topic-list", "nothing")
    offsets(stage)
    deletion(stage)


def offsets(stage: Stage) -> None:
    def show(sentence: str, *arguments: str) -> None:
        stage.step(sentence, OFFSETS, *arguments)

    show("show the end offsets", "--topic", "read")
    show("show the first offsets", "--topic", "read", "--time", "-2")
    show("show the offsets of the newest records", "--topic", "read", "--time", "max-timestamp")
    show("show the offsets of a time", "--topic", "read", "--time", "4000000000003")
    show("show the offsets of a time that has not come", "--topic", "read", "--time", "99999999999999")
    show("show the offset of one partition", "--topic-partitions", "read:1")
    show("show the offsets of a range of partitions", "--topic", "read", "--partitions", "0-1")
    show("show the offsets of a partition that is not there", "--topic", "read", "--partitions", "7")
    show("show the offsets of a topic that is not there", "--topic", "nothing")
    show("show the offsets of tiered storage", "--topic", "read", "--time", "earliest-local")
    show("show the offsets of no time", "--topic", "read", "--time", "yesterday")


def deletion(stage: Stage) -> None:
    def delete(sentence: str, *rows: tuple[str, int, int]) -> None:
        partitions = [{"topic": topic, "partition": partition, "offset": offset} for topic, partition, offset in rows]
        path = stage.file("deleted.json", {"version": 1, "partitions": partitions})
        stage.step(sentence, DELETE, "--offset-json-file", path, in_any_order=True)

    delete("delete records", ("read", 0, 3), ("read", 1, 2))
    delete("delete all records", ("read", 1, -1))
    delete("delete records beyond the end", ("read", 0, 99))
    delete("delete records of a partition twice", ("read", 0, 4), ("read", 0, 5))
    delete("delete records of a compacted topic", ("__consumer_offsets", 0, 0))
    stage.step("show the first offsets after a deletion", OFFSETS, "--topic", "read", "--time", "earliest")


def comparison(stage: Stage) -> None:
    """The tool does not end by itself."""
    arguments = ("--topics-include", "read", "--report-interval-ms", "100", "--time", "-2")
    stage.step("compare the replicas", VERIFICATION, *arguments, at="--broker-list", until="max lag is 0", mask=LAG)
