"""ReassignPartitionsCommand. A reassignment of a partition whose only replica is down stays under way."""

from __future__ import annotations

from tests.cluster.cluster import NOBODY
from tests.cluster.kafka_tools.stage import BROKER, TOPIC, Stage
from tests.cluster.kafka_tools.topics import TOPICS, create

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
THROTTLE = "10000000"
Row = tuple[str, int, list[int]]


def plan(stage: Stage, name: str, *rows: Row) -> tuple[str, str]:
    """The option that names a file of (topic, partition, replicas)."""
    partitions = [{"topic": topic, "partition": number, "replicas": brokers} for topic, number, brokers in rows]
    return "--reassignment-json-file", stage.file(name, {"version": 1, "partitions": partitions})


def reassignments(stage: Stage) -> None:
    create(stage, "create a topic that moves", "moving", "1:2,2:3")
    stage.write("moving", 0, 5)
    generated(stage)
    refused(stage)
    completed(stage)
    throttled(stage)


def generated(stage: Stage) -> None:
    def generate(sentence: str, topics: list[str], brokers: str, mask: dict[str, str] | None = None) -> None:
        content = {"version": 1, "topics": [{"topic": topic} for topic in topics]}
        path = stage.file("topics.json", content)
        arguments = ("--generate", "--topics-to-move-json-file", path, "--broker-list", brokers)
        stage.step(sentence, REASSIGN, *arguments, mask=mask)

    any_brokers = {r'^(\{.*"replicas":)\[\d,\d\](.*"replicas":)\[\d,\d\]': r"\1[PLACE]\2[PLACE]"}
    generate("propose a plan", ["moving"], "1,2,3", any_brokers)
    generate("propose a plan for one broker", ["moving"], "1")
    generate("propose a plan for a topic that is not there", ["nothing"], "1,2")
    generate("propose a plan with a broker that is not there", ["moving"], "1,2,9", any_brokers)
    generate("propose a plan with a broker twice", ["moving"], "1,1")


def refused(stage: Stage) -> None:
    def execute(sentence: str, *rows: Row) -> None:
        stage.step(sentence, REASSIGN, "--execute", *plan(stage, "refused.json", *rows))

    execute("reassign to a broker that is not there", ("moving", 0, [1, 9]))
    execute("reassign to a broker twice", ("moving", 0, [1, 1]))
    execute("reassign to no broker", ("moving", 0, []))
    execute("reassign a partition twice", ("moving", 0, [1, 2]), ("moving", 0, [2, 3]))
    execute("reassign a topic that is not there", ("nothing", 0, [1, 2]))
    execute("reassign a partition that is not there", ("moving", 5, [1, 2]))
    execute("reassign nothing")
    path = stage.file("bad.json", "{")
    stage.step("reassign by a file that is not JSON", REASSIGN, "--execute", "--reassignment-json-file", path)
    unknown = plan(stage, "unknown.json", ("nothing", 0, [1, 2]))
    stage.step("verify a topic that is not there", REASSIGN, "--verify", *unknown)
    stage.step("cancel what is not under way", REASSIGN, "--cancel", *plan(stage, "idle.json", ("moving", 0, [1, 2])))
    stage.step("list reassignments while there are none", REASSIGN, "--list")


def completed(stage: Stage) -> None:
    moves = plan(stage, "moves.json", ("moving", 0, [3, 1]), ("moving", 1, [2, 3]))
    stage.step("reassign", REASSIGN, "--execute", *moves)
    _until_placed(stage, "moving", 0, 3, 1)
    stage.step("verify a reassignment", REASSIGN, "--verify", *moves)
    stage.step("describe what has moved", TOPICS, "--describe", "--topic", "moving")
    grown = plan(stage, "grown.json", ("moving", 0, [3, 1, 2]))
    stage.step("add a replica", REASSIGN, "--execute", *grown)
    _until_placed(stage, "moving", 0, 3, 1, 2)
    stage.step("verify an added replica", REASSIGN, "--verify", *grown)
    stage.step("verify a plan that does not hold", REASSIGN, "--verify", *moves)


def throttled(stage: Stage) -> None:
    moves = plan(stage, "throttled.json", ("moving", 0, [1, 2]), ("moving", 1, [3, 1]))
    stage.step("reassign with a throttle", REASSIGN, "--execute", "--throttle", THROTTLE, *moves)
    stage.until_configured(TOPIC, "moving", follower__replication__throttled__replicas="1:1")
    _until_placed(stage, "moving", 0, 1, 2)
    _until_placed(stage, "moving", 1, 3, 1)
    stage.step(
        "describe settings of throttled topics",
        "kafka.admin.ConfigCommand",
        "--entity-type",
        "topics",
        "--entity-name",
        "moving",
        "--describe",
    )
    stage.until_listed(BROKER, "1", "leader.replication.throttled.rate", "follower.replication.throttled.rate")
    stage.step(
        "describe settings of throttled brokers",
        "kafka.admin.ConfigCommand",
        "--entity-type",
        "brokers",
        "--entity-name",
        "1",
        "--describe",
    )
    stage.step("verify and keep the throttles", REASSIGN, "--verify", "--preserve-throttles", *moves)
    stage.step("verify and end the throttles", REASSIGN, "--verify", *moves)
    stage.until_configured(TOPIC, "moving", follower__replication__throttled__replicas=None)
    stage.step(
        "describe settings without throttles",
        "kafka.admin.ConfigCommand",
        "--entity-type",
        "topics",
        "--entity-name",
        "moving",
        "--describe",
    )
    stage.step("reassign with a throttle of 0", REASSIGN, "--execute", "--throttle", "0", *moves)


def under_way(stage: Stage) -> None:
    """Broker 3 is down, and comes back."""
    create(stage, "create a topic that cannot move", "stuck", "3,3")
    stage.cluster.terminate(3)
    stage.until_partition("stuck", 0, lambda state: state.leader == NOBODY)
    moves = plan(stage, "stuck.json", ("stuck", 0, [1]), ("stuck", 1, [2]))
    stage.step("begin a reassignment", REASSIGN, "--execute", *moves)
    stage.step("verify what is under way", REASSIGN, "--verify", *moves)
    stage.step("list what is under way", REASSIGN, "--list")
    stage.step("describe what is under way", TOPICS, "--describe", "--topic", "stuck")
    stage.step(
        "describe under-replicated partitions under way",
        TOPICS,
        "--describe",
        "--under-replicated-partitions",
        "--topic",
        "stuck",
    )
    other = plan(stage, "other.json", ("stuck", 0, [2]))
    stage.step("reassign while another is under way", REASSIGN, "--execute", *other)
    stage.step("reassign beside another", REASSIGN, "--execute", "--additional", *other)
    stage.step(
        "add partitions while a reassignment is under way", TOPICS, "--alter", "--topic", "stuck", "--partitions", "3"
    )
    cancelled = plan(stage, "cancelled.json", ("stuck", 1, [2]))
    stage.step("cancel and keep the throttles", REASSIGN, "--cancel", "--preserve-throttles", *cancelled)
    stage.step("list what is left under way", REASSIGN, "--list")
    stage.step("cancel all", REASSIGN, "--cancel", *plan(stage, "all.json", ("stuck", 0, [2]), ("stuck", 1, [2])))
    stage.step("list after all is cancelled", REASSIGN, "--list")
    stage.step("begin again", REASSIGN, "--execute", *moves)
    stage.cluster.launch(3)
    _until_placed(stage, "stuck", 0, 1)
    _until_placed(stage, "stuck", 1, 2)
    stage.step("verify what could go on", REASSIGN, "--verify", *moves)
    stage.cluster.until_whole()


def _until_placed(stage: Stage, topic: str, partition: int, *brokers: int) -> None:
    """Waits until a reassignment is complete, and the first of its replicas leads."""
    stage.until_partition(topic, partition, lambda state: state.replicas == brokers and state.isr == frozenset(brokers))
