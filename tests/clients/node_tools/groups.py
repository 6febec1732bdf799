"""Tools for groups: members at work in both protocols, groups at rest, and kinds of groups that are not served."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from functools import partial

import confluent_kafka
from confluent_kafka import TopicPartition

from tests.clients.node_tools.stage import Stage
from tests.patience import block_until

FEATURES = "org.apache.kafka.tools.FeatureCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
STREAMS_GROUPS = "org.apache.kafka.tools.streams.StreamsGroupCommand"
STREAMS_RESET = "org.apache.kafka.tools.StreamsResetter"


def groups(stage: Stage) -> None:
    with members(stage):
        listed(stage)
        for group in ("at-work", "at-work-classic"):
            described(stage, group)
            of_group = ("--group", group)
            stage.step(
                f"{group}: reset",
                CONSUMER_GROUPS,
                "--reset-offsets",
                *of_group,
                "--topic",
                "kept",
                "--to-earliest",
                "--execute",
            )
            stage.step(f"{group}: delete", CONSUMER_GROUPS, "--delete", *of_group)
            stage.step(f"{group}: delete offsets", CONSUMER_GROUPS, "--delete-offsets", *of_group, "--topic", "kept")
            stage.step(f"{group}: describe as a share group", SHARE_GROUPS, "--describe", *of_group)
            stage.step(f"{group}: describe as a streams group", STREAMS_GROUPS, "--describe", *of_group)
    for group in ("reader", "classic-reader", "none"):
        described(stage, group)
    resets(stage)


@contextlib.contextmanager
def members(stage: Stage) -> Iterator[None]:
    """A member of each protocol at work, in groups of their own."""
    stop = threading.Event()
    consumers = []
    for group, protocol in (("at-work", "consumer"), ("at-work-classic", "classic")):
        options = {
            "bootstrap.servers": stage.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "group.instance.id": "i",
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            options["partition.assignment.strategy"] = "range"
        consumers.append(confluent_kafka.Consumer(options))
        consumers[-1].subscribe(["kept"])
    for consumer in consumers:
        block_until(partial(consumer.consume, 1, 1))
        offsets = [TopicPartition("kept", number, 1) for number in range(3)]
        consumer.commit(offsets=offsets, asynchronous=False)

    def keep_polling() -> None:
        while not stop.is_set():
            for consumer in consumers:
                consumer.poll(0.1)

    thread = threading.Thread(target=keep_polling)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
        for consumer in consumers:
            consumer.close()


def listed(stage: Stage) -> None:
    def groups_tool(sentence: str, *arguments: str) -> None:
        stage.step(sentence, GROUPS, "--list", *arguments, in_any_order=True)

    def consumer_groups(sentence: str, *arguments: str) -> None:
        stage.step(sentence, CONSUMER_GROUPS, "--list", *arguments, in_any_order=True)

    groups_tool("list groups")
    groups_tool("list consumer groups", "--consumer")
    groups_tool("list groups of the newer protocol", "--group-type", "consumer")
    groups_tool("list classic groups", "--group-type", "classic")
    groups_tool("list groups of a type that is none", "--group-type", "odd")
    groups_tool("list share groups", "--share")
    groups_tool("list streams groups", "--streams")
    groups_tool("list groups by protocol", "--protocol", "consumer")
    consumer_groups("list groups of consumers")
    consumer_groups("list groups with states", "--state")
    consumer_groups("list groups with types", "--type")
    consumer_groups("list stable groups with types", "--state", "stable", "--type", "consumer")
    consumer_groups("list groups in a state that is none", "--state", "tired")
    consumer_groups("list groups of consumers of a type that is none", "--type", "share")
    stage.step("list groups of the share tool", SHARE_GROUPS, "--list", "--state")
    stage.step("list groups of the streams tool", STREAMS_GROUPS, "--list", "--state")


def described(stage: Stage, group: str) -> None:
    def describe(sentence: str, *arguments: str) -> None:
        stage.step(f"{group}: {sentence}", CONSUMER_GROUPS, "--describe", "--group", group, *arguments)

    describe("describe")
    describe("describe in full", "--verbose")
    describe("describe members", "--members")
    describe("describe members in full", "--members", "--verbose")
    describe("describe the state", "--state")
    describe("describe the state in full", "--state", "--verbose")


def resets(stage: Stage) -> None:
    def reset(sentence: str, *arguments: str, group: str = "reader") -> None:
        stage.step(sentence, CONSUMER_GROUPS, "--reset-offsets", "--group", group, *arguments)

    reset("reset to the beginning", "--topic", "kept", "--to-earliest", "--dry-run")
    reset("reset by a shift", "--all-topics", "--shift-by", "-1", "--execute")
    reset("reset a group that is not there", "--topic", "kept", "--to-latest", "--execute", group="newcomer")
    reset("reset a topic that is not there", "--topic", "none", "--to-latest", "--execute")
    stage.step("delete offsets", CONSUMER_GROUPS, "--delete-offsets", "--group", "reader", "--topic", "kept:0")
    stage.step("delete groups", CONSUMER_GROUPS, "--delete", "--group", "reader", "--group", "none")
    stage.step("validate an expression", CONSUMER_GROUPS, "--validate-regex", "k.*")
    stage.step("validate an expression that is none", CONSUMER_GROUPS, "--validate-regex", "k(")
    of_share = ("--group", "sharing")
    stage.step("share: describe", SHARE_GROUPS, "--describe", *of_share)
    stage.step("share: describe members", SHARE_GROUPS, "--describe", *of_share, "--members")
    stage.step("share: delete", SHARE_GROUPS, "--delete", *of_share)
    stage.step(
        "share: reset", SHARE_GROUPS, "--reset-offsets", *of_share, "--topic", "kept", "--to-earliest", "--execute"
    )
    stage.step("share: delete offsets", SHARE_GROUPS, "--delete-offsets", *of_share, "--topic", "kept")
    of_streams = ("--group", "counting")
    stage.step("streams: describe", STREAMS_GROUPS, "--describe", *of_streams)
    stage.step("streams: delete", STREAMS_GROUPS, "--delete", *of_streams)
    stage.step(
        "streams: reset",
        STREAMS_GROUPS,
        "--reset-offsets",
        *of_streams,
        "--all-input-topics",
        "--to-earliest",
        "--execute",
    )
    stage.step("reset an application", STREAMS_RESET, "--application-id", "counting", "--input-topics", "kept")


def without_the_newer_protocol(stage: Stage) -> None:
    """The feature of the newer protocol is turned off, and on again."""
    read = ("--topic", "kept", "--from-beginning", "--timeout-ms", "3000")
    newer = ("--command-property", "group.protocol=consumer", "--group", "late")
    stage.step("turn the newer protocol off", FEATURES, "downgrade", "--feature", "group.version=0")
    stage.step("read in a group of a protocol that is off", CONSUMER, *read, *newer)
    stage.step("describe a group of a protocol that is off", CONSUMER_GROUPS, "--describe", "--group", "at-work")
    stage.step("list groups of a protocol that is off", GROUPS, "--list", "--group-type", "consumer")
    stage.step("turn the newer protocol on", FEATURES, "upgrade", "--feature", "group.version=1")
    stage.step("describe a group of a protocol that is on again", CONSUMER_GROUPS, "--describe", "--group", "at-work")
