"""ConsumerGroupCommand in a cluster: a group at work, and one without members."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import confluent_kafka
from confluent_kafka import TopicPartition

from tests.cluster.kafka_tools.stage import Stage
from tests.cluster.kafka_tools.topics import create
from tests.patience import block_until

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
COORDINATOR = {r"HOST:PORT-\d \(\d\)": "COORDINATOR"}


def groups(stage: Stage) -> None:
    create(stage, "create a topic of words", "words", "1:2:3,2:3:1")
    stage.write("words", 0, 10)
    stage.write("words", 1, 7)
    with member(stage, "reading"):
        at_work(stage)
    block_until(lambda: stage.cluster.group_state("reading") == "Empty")
    at_rest(stage)
    resets(stage)
    ends(stage)


@contextlib.contextmanager
def member(stage: Stage, group: str) -> Iterator[None]:
    """A consumer that has both partitions, and has committed a part of them."""
    settings = {
        "bootstrap.servers": stage.bootstrap,
        "group.id": group,
        "client.id": "reader",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "range",
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["words"])
    block_until(lambda: consumer.consume(1, 1))
    consumer.commit(offsets=[TopicPartition("words", number, 4 + number) for number in (0, 1)], asynchronous=False)
    stop = threading.Event()

    def keep_polling() -> None:
        while not stop.is_set():
            consumer.poll(0.1)

    thread = threading.Thread(target=keep_polling)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
        consumer.close()


def at_work(stage: Stage) -> None:
    def of_group(sentence: str, *arguments: str) -> None:
        stage.step(sentence, GROUPS, *arguments, "--group", "reading", mask=COORDINATOR)

    stage.step("list groups", GROUPS, "--list", in_any_order=True)
    stage.step("list groups with states", GROUPS, "--list", "--state", in_any_order=True)
    stage.step("list groups with types", GROUPS, "--list", "--type", in_any_order=True)
    stage.step("list groups that are stable", GROUPS, "--list", "--state", "stable")
    stage.step("list groups in an unknown state", GROUPS, "--list", "--state", "tired")
    of_group("describe a group", "--describe")
    of_group("describe a group's members", "--describe", "--members")
    of_group("describe a group's members in full", "--describe", "--members", "--verbose")
    of_group("describe a group's state", "--describe", "--state")
    of_group("describe a group in full", "--describe", "--offsets", "--verbose")
    of_group("reset a group at work", "--reset-offsets", "--topic", "words", "--to-earliest", "--execute")
    of_group("delete a group at work", "--delete")
    of_group("delete offsets of a group at work", "--delete-offsets", "--topic", "words")


def at_rest(stage: Stage) -> None:
    def describe(sentence: str, *arguments: str, group: str = "reading") -> None:
        stage.step(sentence, GROUPS, "--describe", "--group", group, *arguments, mask=COORDINATOR)

    describe("describe a group without members")
    describe("describe the members of a group without any", "--members")
    describe("describe the state of a group without members", "--state")
    describe("describe a group that is not there", group="nobody")
    describe("describe the members of a group that is not there", "--members", group="nobody")
    describe("describe the state of a group that is not there", "--state", group="nobody")
    stage.step("describe all groups", GROUPS, "--describe", "--all-groups")
    stage.step("describe the states of all groups", GROUPS, "--describe", "--all-groups", "--state", mask=COORDINATOR)


def resets(stage: Stage) -> None:
    def reset(sentence: str, *arguments: str, topic: str = "words", group: str = "reading") -> None:
        of = ("--reset-offsets", "--group", group, "--topic", topic)
        stage.step(sentence, GROUPS, *of, *arguments, in_any_order=True)

    reset("say what a reset to the first offsets would do", "--to-earliest", "--dry-run")
    reset("reset to the first offsets", "--to-earliest", "--execute")
    reset("reset to the end", "--to-latest", "--execute")
    reset("reset to an offset", "--to-offset", "5", "--execute")
    reset("reset to an offset beyond the end", "--to-offset", "1000", "--execute", topic="words:0")
    reset("reset by a shift", "--shift-by", "-3", "--execute", topic="words:0,1")
    reset("reset to what is committed", "--to-current", "--execute")
    reset("reset to a time", "--to-datetime", "2096-10-02T07:06:40.004", "--execute")
    reset("reset by a duration", "--by-duration", "PT1M", "--execute")
    reset("export a reset", "--to-earliest", "--export")
    rows = stage.file("offsets.csv", '"words",0,2\n"words",1,3\n')
    reset("reset by a file", "--from-file", rows, "--execute")
    reset("reset a topic that is not there", "--to-earliest", "--execute", topic="nothing")
    reset("reset a group that is not there", "--to-earliest", "--execute", group="newcomer")
    reset("reset to nothing", "--execute")
    all_of = ("--reset-offsets", "--all-groups", "--all-topics", "--to-earliest", "--dry-run")
    stage.step("say what a reset of all groups would do", GROUPS, *all_of, in_any_order=True)
    stage.step("describe the groups after the resets", GROUPS, "--describe", "--all-groups", "--offsets")


def ends(stage: Stage) -> None:
    of_group = ("--group", "reading")
    stage.step("delete the offset of a partition", GROUPS, "--delete-offsets", *of_group, "--topic", "words:0")
    stage.step(
        "delete offsets of a topic that is not there", GROUPS, "--delete-offsets", *of_group, "--topic", "nothing:0"
    )
    stage.step("describe a group with one offset", GROUPS, "--describe", *of_group)
    stage.step("delete a group and one that is not there", GROUPS, "--delete", *of_group, "--group", "nobody")
    stage.step("delete all groups", GROUPS, "--delete", "--all-groups")
    stage.step("list groups in the end", GROUPS, "--list")
