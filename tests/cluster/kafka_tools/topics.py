"""TopicCommand: topics are created, described, changed and deleted."""

from __future__ import annotations

from tests.cluster.kafka_tools.stage import Stage

TOPICS = "org.apache.kafka.tools.TopicCommand"
UNKNOWN_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
RANDOM_PLACES = {r"Leader: \d+ Replicas: [\d,]+ Isr: [\d,]+": "PLACE"}


def create(stage: Stage, sentence: str, topic: str, assignment: str, *arguments: str) -> None:
    """Creates a topic with `assignment`, which is as TopicCommand takes it."""
    stage.step(sentence, TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment, *arguments)
    stage.until_created(topic, len(assignment.split(",")))


def topics_of_a_whole_cluster(stage: Stage) -> None:
    create(stage, "create a topic with an assignment", "placed", "1:2:3,2:3:1,3:1:2")
    create(stage, "create a topic with settings", "tuned", "1:2", "--config", "retention.ms=60000")
    sizes = ("--partitions", "4", "--replication-factor", "2")
    stage.step("create a topic of a size", TOPICS, "--create", "--topic", "sized", *sizes)
    stage.until_created("sized", 4)
    stage.step("create a topic with the defaults", TOPICS, "--create", "--topic", "default.one")
    stage.until_created("default.one", 1)
    refused_creations(stage)
    listings(stage)
    descriptions(stage)
    alterations(stage)
    deletions(stage)


def refused_creations(stage: Stage) -> None:
    def refused(sentence: str, topic: str, *arguments: str) -> None:
        stage.step(sentence, TOPICS, "--create", "--topic", topic, *arguments)

    refused("create a topic that is there", "placed")
    refused("create a topic if it is not there", "placed", "--if-not-exists")
    refused("create a topic with more replicas than brokers", "large", "--replication-factor", "4")
    refused("create a topic without partitions", "none", "--partitions", "0")
    refused("create a topic without replicas", "none", "--replication-factor", "0")
    refused("create a topic with a bad name", "what?")
    refused("create a topic whose name collides", "default_one")
    refused("create a topic with an unknown setting", "odd", "--config", "no.such=1")
    refused("create a topic with a bad value", "odd", "--config", "retention.ms=soon")
    refused("create a topic on a broker twice", "odd", "--replica-assignment", "1:1")
    refused("create a topic with uneven replicas", "odd", "--replica-assignment", "1:2,3")
    refused("create a topic with a size and an assignment", "odd", "--replica-assignment", "1", "--partitions", "1")


def listings(stage: Stage) -> None:
    stage.step("list topics", TOPICS, "--list")
    stage.step("list topics but internal ones", TOPICS, "--list", "--exclude-internal")
    stage.step("list topics of a pattern", TOPICS, "--list", "--topic", "(placed|tun.*)")
    stage.step("list a topic that is not there", TOPICS, "--list", "--topic", "nothing")


def descriptions(stage: Stage) -> None:
    def describe(sentence: str, *arguments: str) -> None:
        stage.step(sentence, TOPICS, "--describe", *arguments)

    describe("describe a topic", "--topic", "placed")
    describe("describe topics of a pattern", "--topic", "placed|tuned")
    describe("describe a topic that is not there", "--topic", "nothing")
    describe("describe a topic that need not be there", "--topic", "nothing", "--if-exists")
    describe("describe an id that is not there", "--topic-id", UNKNOWN_ID)
    describe("describe an id that need not be there", "--topic-id", UNKNOWN_ID, "--if-exists")
    stage.step("describe a topic that Kafka has placed", TOPICS, "--describe", "--topic", "sized", mask=RANDOM_PLACES)
    describe("describe what has settings of its own", "--topics-with-overrides", "--exclude-internal")
    incomplete(stage, "while all brokers are there")
    describe("describe topics at the smallest ISR", "--at-min-isr-partitions", "--topic", "tuned")


def incomplete(stage: Stage, when: str) -> None:
    """Asks for what is not as it should be. Kafka has placed `sized` and the internal topics anywhere."""
    chosen = ("--topic", "placed|tuned|lone|risky")
    for option in ("under-replicated", "under-min-isr", "at-min-isr", "unavailable"):
        stage.step(f"describe {option} partitions {when}", TOPICS, "--describe", f"--{option}-partitions", *chosen)


def alterations(stage: Stage) -> None:
    def alter(sentence: str, *arguments: str) -> None:
        stage.step(sentence, TOPICS, "--alter", *arguments)

    alter(
        "add partitions with an assignment",
        *("--topic", "tuned", "--partitions", "2", "--replica-assignment", "1:2,3:1"),
    )
    stage.until_created("tuned", 2)
    alter("add partitions", "--topic", "sized", "--partitions", "6")
    stage.until_created("sized", 6)
    alter("ask for fewer partitions", "--topic", "sized", "--partitions", "3")
    alter("ask for as many partitions", "--topic", "sized", "--partitions", "6")
    alter("add partitions to a topic that is not there", "--topic", "nothing", "--partitions", "3")
    alter("add partitions to what need not be there", "--topic", "nothing", "--partitions", "3", "--if-exists")
    alter(
        "add partitions with too few replicas",
        *("--topic", "tuned", "--partitions", "3", "--replica-assignment", "1:2,3:1,1"),
    )
    alter(
        "add partitions on an unknown broker",
        *("--topic", "tuned", "--partitions", "3", "--replica-assignment", "1:2,3:1,1:9"),
    )
    alter("add too few assignments", *("--topic", "tuned", "--partitions", "4", "--replica-assignment", "1:2,3:1,1:2"))
    stage.step("describe a topic with more partitions", TOPICS, "--describe", "--topic", "tuned")


def deletions(stage: Stage) -> None:
    def delete(sentence: str, *arguments: str) -> None:
        stage.step(sentence, TOPICS, "--delete", *arguments)

    delete("delete a topic", "--topic", "default.one")
    stage.cluster.until(lambda view: all(key.topic != "default.one" for key in view.partitions))
    delete("delete a topic that is not there", "--topic", "nothing")
    delete("delete a topic that need not be there", "--topic", "nothing", "--if-exists")
    stage.step("list topics after a deletion", TOPICS, "--list", "--exclude-internal")
