"""LeaderElectionCommand, and TopicCommand while brokers are down."""

from __future__ import annotations

from functools import partial

from tests.cluster.cluster import NOBODY
from tests.cluster.kafka_tools.stage import Stage
from tests.cluster.kafka_tools.topics import TOPICS, create, incomplete

ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"


def elections(stage: Stage) -> None:
    def elect(sentence: str, kind: str, *arguments: str) -> None:
        stage.step(sentence, ELECTION, "--election-type", kind, *arguments)

    placed = ("--topic", "placed", "--partition", "0")
    elect("elect a leader that leads", "preferred", *placed)
    elect("elect an unclean leader while the leader lives", "unclean", *placed)
    elect("elect a leader of a topic that is not there", "preferred", "--topic", "nothing", "--partition", "0")
    elect("elect a leader of a partition that is not there", "preferred", "--topic", "placed", "--partition", "7")
    elect("elect leaders of nothing", "preferred")
    elect("elect leaders in two ways", "preferred", "--all-topic-partitions", *placed)
    elect("elect in an unknown way", "best", "--all-topic-partitions")
    elect("elect a leader of a topic without a partition", "preferred", "--topic", "placed")


def brokers_down(stage: Stage) -> None:
    """Broker 3 goes, then 2; both come back."""
    create(stage, "create a topic with one replica", "lone", "3")
    create(stage, "create a topic that may lose records", "risky", "2:3", "--config", "min.insync.replicas=1")
    stage.write("risky", 0, 2)
    stage.cluster.terminate(3)
    stage.until_isr("placed", 2, 1, 2)
    stage.until_isr("risky", 0, 2)
    incomplete(stage, "while broker 3 is gone")
    stage.step("describe topics while broker 3 is gone", TOPICS, "--describe", "--topic", "placed|lone|risky")
    elect = partial(elect_one, stage)
    elect("elect a preferred leader that is gone", "preferred", "placed", 2)
    elect("elect an unclean leader where no replica lives", "unclean", "lone", 0)
    elect("elect a preferred leader where no replica lives", "preferred", "lone", 0)
    stage.write("risky", 0, 3)
    stage.cluster.terminate(2)
    stage.until_partition("risky", 0, lambda state: state.leader == NOBODY)
    stage.cluster.launch(3)
    stage.until_partition("lone", 0, lambda state: state.leader == 3)
    for partition in range(3):
        stage.until_isr("placed", partition, 1, 3)
    stage.until_isr("tuned", 1, 1, 3)
    stage.step("describe a partition that is offline", TOPICS, "--describe", "--topic", "risky")
    incomplete(stage, "while broker 2 is gone")
    elect("elect a clean leader where only a late replica lives", "preferred", "risky", 0)
    elect("elect an unclean leader", "unclean", "risky", 0)
    stage.until_isr("risky", 0, 3)
    stage.step("describe a partition with an unclean leader", TOPICS, "--describe", "--topic", "risky")
    stage.cluster.launch(2)
    stage.cluster.until_whole()
    elect("elect a preferred leader that is back", "preferred", "risky", 0)
    chosen = {"partitions": [{"topic": "placed", "partition": number} for number in (1, 2)]}
    path = stage.file("elections.json", chosen)
    stage.step(
        "elect leaders by a file",
        ELECTION,
        "--election-type",
        "preferred",
        "--path-to-json-file",
        path,
        in_any_order=True,
    )
    empty = stage.file("no-elections.json", {"partitions": []})
    stage.step("elect leaders by an empty file", ELECTION, "--election-type", "preferred", "--path-to-json-file", empty)
    twice = stage.file("twice.json", {"partitions": [*chosen["partitions"], *chosen["partitions"]]})
    stage.step(
        "elect leaders by a file that names one twice",
        ELECTION,
        "--election-type",
        "preferred",
        "--path-to-json-file",
        twice,
    )
    stage.cluster.elect_preferred_leaders()


def elect_one(stage: Stage, sentence: str, kind: str, topic: str, partition: int) -> None:
    """Elects a leader of one partition."""
    which = ("--topic", topic, "--partition", str(partition))
    stage.step(sentence, ELECTION, "--election-type", kind, *which)
