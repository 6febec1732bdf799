"""Tools for topics, their records and their partitions."""

from __future__ import annotations

from tests.clients.node_tools.stage import Stage

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DELETE = "org.apache.kafka.tools.DeleteRecordsCommand"
DIRS = "org.apache.kafka.tools.LogDirsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
TOPICS = "org.apache.kafka.tools.TopicCommand"


def topics(stage: Stage) -> None:
    def topic(sentence: str, *arguments: str) -> None:
        stage.step(sentence, TOPICS, *arguments)

    create = ("--create", "--topic", "words")
    topic("list no topics", "--list")
    topic("create a topic", *create, "--partitions", "2", "--replication-factor", "1")
    topic("create a topic of one partition", "--create", "--topic", "single")
    topic("create a topic again", *create)
    topic("create a topic if it is not there", *create, "--if-not-exists")
    topic("create a topic with a bad name", "--create", "--topic", "a b")
    topic("create a topic on too many brokers", "--create", "--topic", "two", "--replication-factor", "2")
    topic("create a topic with settings", "--create", "--topic", "kept", "--config", "retention.ms=1000000")
    topic("create a topic with a bad setting", "--create", "--topic", "bad", "--config", "retention.ms=long")
    topic("create a topic with an assignment", "--create", "--topic", "placed", "--replica-assignment", "1,1,1")
    topic("create a topic on a broker that is not there", "--create", "--topic", "lost", "--replica-assignment", "7")
    topic("describe a topic", "--describe", "--topic", "words")
    topic("describe all topics", "--describe")
    topic("describe topics that match", "--describe", "--topic", "w.*|kept")
    topic("describe a topic that is not there", "--describe", "--topic", "none")
    topic("describe a topic if it is there", "--describe", "--topic", "none", "--if-exists")
    topic("describe topics with settings", "--describe", "--topics-with-overrides")
    topic("describe under-replicated partitions", "--describe", "--under-replicated-partitions")
    topic("describe unavailable partitions", "--describe", "--unavailable-partitions")
    topic("describe partitions at the least", "--describe", "--at-min-isr-partitions")
    topic("describe partitions below the least", "--describe", "--under-min-isr-partitions")
    topic("describe few partitions in a response", "--describe", "--partition-size-limit-per-response", "2")
    topic("describe a topic by an id that is none", "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAA7w")
    topic("add partitions", "--alter", "--topic", "kept", "--partitions", "3")
    topic("take partitions away", "--alter", "--topic", "kept", "--partitions", "1")
    topic("add partitions to a topic that is not there", "--alter", "--topic", "none", "--partitions", "3")
    topic("list topics", "--list")
    topic("delete a topic", "--delete", "--topic", "placed")
    topic("delete a topic that is not there", "--delete", "--topic", "placed")
    topic("list topics in the end", "--list", "--exclude-internal")


def records(stage: Stage) -> None:
    lines = "".join(f"k{number}\tv{number}\n" for number in range(6))
    keyed = ("--topic", "kept", "--reader-property", "parse.key=true")
    stage.step("write lines", PRODUCER, *keyed, "--sync", given=lines)
    stage.step(
        "write lines to a topic that is not there",
        PRODUCER,
        "--topic",
        "none",
        "--command-property",
        "max.block.ms=500",
        given="a\n",
    )
    printed = ("--formatter-property", "print.key=true", "--formatter-property", "print.partition=true")
    read = ("--topic", "kept", "--from-beginning", "--max-messages", "6")
    stage.step("read lines", CONSUMER, *read, *printed, "--group", "classic-reader", in_any_order=True)
    newer = ("--command-property", "group.protocol=consumer", "--group", "reader")
    stage.step("read lines in a group of the newer protocol", CONSUMER, *read, *printed, *newer, in_any_order=True)
    stage.step(
        "read a partition",
        CONSUMER,
        "--topic",
        "kept",
        "--partition",
        "0",
        "--offset",
        "earliest",
        "--timeout-ms",
        "3000",
        *printed,
    )
    stage.step(
        "read a topic that is not there", CONSUMER, "--topic", "none", "--from-beginning", "--timeout-ms", "3000"
    )
    stage.step(
        "read from a share group", SHARE_CONSUMER, "--topic", "kept", "--timeout-ms", "3000", "--group", "sharing"
    )
    for when in (
        "earliest",
        "latest",
        "max-timestamp",
        "earliest-local",
        "latest-tiered",
        "earliest-pending-upload",
        "-7",
    ):
        stage.step(f"show offsets: {when}", OFFSETS, "--topic", "kept", "--time", when)
    stage.step(
        "show offsets of partitions", OFFSETS, "--topic-partitions", "kept:0-2,words", "--exclude-internal-topics"
    )
    stage.step("show offsets of a topic that is not there", OFFSETS, "--topic", "none")
    rows = '{"partitions":[{"topic":"kept","partition":0,"offset":1}],"version":1}'
    stage.step("delete records", DELETE, "--offset-json-file", stage.file("records.json", rows))
    stage.step("show offsets after a deletion", OFFSETS, "--topic", "kept", "--time", "earliest")
    stage.step("describe the directories", DIRS, "--describe", "--topic-list", "kept,none")
    stage.step("describe the directories of a broker that is not there", DIRS, "--describe", "--broker-list", "7")


def partitions(stage: Stage) -> None:
    stage.step("elect the preferred leaders", ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    stage.step("elect any leader", ELECTION, "--election-type", "unclean", "--topic", "words", "--partition", "0")
    stage.step(
        "elect a leader of what is not there",
        ELECTION,
        "--election-type",
        "preferred",
        "--topic",
        "none",
        "--partition",
        "0",
    )
    moved = stage.file("topics.json", '{"topics":[{"topic":"words"}],"version":1}')
    stage.step(
        "plan a reassignment", REASSIGNMENT, "--generate", "--topics-to-move-json-file", moved, "--broker-list", "1"
    )
    plan = stage.file("plan.json", '{"version":1,"partitions":[{"topic":"words","partition":0,"replicas":[1]}]}')
    stage.step("reassign", REASSIGNMENT, "--execute", "--reassignment-json-file", plan)
    stage.step("verify a reassignment", REASSIGNMENT, "--verify", "--reassignment-json-file", plan)
    stage.step("list reassignments", REASSIGNMENT, "--list")
    wide = stage.file("wide.json", '{"version":1,"partitions":[{"topic":"words","partition":0,"replicas":[1,7]}]}')
    stage.step("reassign to a broker that is not there", REASSIGNMENT, "--execute", "--reassignment-json-file", wide)
