"""What an administrator does with Kafka's tools, and what alice may do then."""

from __future__ import annotations

from tests.clients.secured_tools.stage import Stage

ACLS = "kafka.admin.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PRODUCER = "kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DIRS = "org.apache.kafka.tools.LogDirsCommand"
ALICE = ("--allow-principal", "User:alice")


def users(stage: Stage) -> None:
    def carol(sentence: str, *arguments: str, user: str = "admin") -> None:
        stage.step(sentence, CONFIGS, "--entity-type", "users", "--entity-name", "carol", *arguments, user=user)

    both = "SCRAM-SHA-256=[iterations=8192,password=carol-secret],SCRAM-SHA-512=[password=carol-secret]"
    carol("describe a user without credentials", "--describe")
    carol("add credentials", "--alter", "--add-config", both)
    carol("describe a user's credentials", "--describe")
    carol("add credentials with few iterations", "--alter", "--add-config", "SCRAM-SHA-256=[iterations=9,password=x]")
    carol("add credentials without a password", "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192]")
    carol("add credentials of no mechanism", "--alter", "--add-config", "SCRAM-SHA-1=[password=x]")
    carol("add credentials without the right", "--alter", "--add-config", "SCRAM-SHA-256=[password=x]", user="alice")
    carol("describe a user without the right", "--describe", user="alice")
    carol("delete one credential", "--alter", "--delete-config", "SCRAM-SHA-512")
    carol("delete it again", "--alter", "--delete-config", "SCRAM-SHA-512")
    stage.step("describe all users", CONFIGS, "--entity-type", "users", "--describe")
    stage.step("list topics by SCRAM", TOPICS, "--list", user="carol", mechanism="scram")
    stage.step(
        "list topics by SCRAM with a wrong password", TOPICS, "--list", user="carol", password="x", mechanism="scram"
    )


def passwords(stage: Stage) -> None:
    for sentence, name, arguments in (
        ("list topics", TOPICS, ["--list"]),
        ("list groups", GROUPS, ["--list"]),
        ("list ACLs", ACLS, ["--list"]),
        ("describe settings", CONFIGS, ["--entity-type", "topics", "--entity-name", "words", "--describe"]),
    ):
        stage.step(f"{sentence} with a wrong password", name, *arguments, user="alice", password="x")
    written = ("--topic", "words", "--sync")
    stage.step(
        "write with a wrong password",
        PRODUCER,
        *written,
        user="alice",
        password="x",
        settings="--producer.config",
        given="a\n",
    )
    read = ("--topic", "words", "--from-beginning", "--timeout-ms", "20000")
    stage.step("read with a wrong password", CONSUMER, *read, user="alice", password="x", settings="--consumer.config")


def additions(stage: Stage) -> None:
    def add(sentence: str, *arguments: str) -> None:
        stage.step(sentence, ACLS, "--add", *arguments)

    stage.step("list ACLs while there are none", ACLS, "--list")
    add("allow an operation", *ALICE, "--operation", "Read", "--topic", "papers")
    add("allow it again", *ALICE, "--operation", "Read", "--topic", "papers")
    add("allow everything to two principals", *ALICE, "--allow-principal", "User:bob", "--topic", "papers")
    hosts = ("--allow-host", "10.0.0.1", "--allow-host", "10.0.0.2")
    add("allow hosts", *ALICE, *hosts, "--operation", "Describe", "--topic", "papers")
    add("deny a host", "--deny-principal", "User:alice", "--deny-host", "10.0.0.3", "--topic", "papers")
    add(
        "deny and allow",
        "--deny-principal",
        "User:mallory",
        "--allow-principal",
        "User:*",
        "--topic",
        "open",
        "--operation",
        "Read",
    )
    add("allow a prefix", *ALICE, "--operation", "All", "--topic", "paper-", "--resource-pattern-type", "prefixed")
    add(
        "allow what a producer needs",
        *ALICE,
        "--producer",
        "--topic",
        "words",
        "--transactional-id",
        "counts",
        "--idempotent",
    )
    add("allow what a consumer needs", *ALICE, "--consumer", "--topic", "words", "--group", "readers")
    add(
        "allow what both need",
        "--allow-principal",
        "User:bob",
        "--producer",
        "--consumer",
        "--topic",
        "both",
        "--group",
        "both",
    )
    add(
        "allow operations on the cluster",
        "--allow-principal",
        "User:bob",
        "--cluster",
        "--operation",
        "IdempotentWrite",
        "--operation",
        "Create",
    )
    add("allow to see settings", *ALICE, "--operation", "DescribeConfigs", "--topic", "words")
    add("allow on a token", *ALICE, "--delegation-token", "x", "--operation", "Describe")
    add("allow on a user", *ALICE, "--user-principal", "User:bob", "--operation", "DescribeTokens")
    add(
        "allow on a group and a transactional id",
        *ALICE,
        "--group",
        "*",
        "--transactional-id",
        "t",
        "--operation",
        "Describe",
    )


def refusals(stage: Stage) -> None:
    def add(sentence: str, *arguments: str, user: str = "admin") -> None:
        stage.step(sentence, ACLS, "--add", *arguments, user=user)

    add("allow no principal", "--operation", "Read", "--topic", "papers")
    add("allow a principal without a type", "--allow-principal", "alice", "--operation", "Read", "--topic", "papers")
    add("allow on no resource", *ALICE, "--operation", "Read")
    add("allow on a name with a slash", *ALICE, "--operation", "Read", "--topic", "a/b")
    add(
        "allow with a pattern of filters",
        *ALICE,
        "--operation",
        "Read",
        "--topic",
        "a",
        "--resource-pattern-type",
        "match",
    )
    add("allow a consumer without a group", *ALICE, "--consumer", "--topic", "words")
    add("allow without the right", *ALICE, "--operation", "Read", "--topic", "papers", user="alice")
    stage.step("list ACLs without the right", ACLS, "--list", user="alice")
    stage.step("remove ACLs without the right", ACLS, "--remove", "--topic", "papers", "--force", user="alice")


def lists(stage: Stage) -> None:
    def shown(sentence: str, *arguments: str) -> None:
        stage.step(sentence, ACLS, "--list", *arguments)

    shown("list all ACLs")
    shown("list the ACLs of a topic", "--topic", "papers")
    shown("list the ACLs of a topic that has none", "--topic", "nothing")
    shown("list the ACLs that match a topic", "--topic", "paper-one", "--resource-pattern-type", "match")
    shown("list the prefixed ACLs", "--topic", "paper-", "--resource-pattern-type", "prefixed")
    shown("list ACLs of any pattern", "--topic", "papers", "--resource-pattern-type", "any")
    shown("list the ACLs of a principal", "--principal", "User:alice")
    shown(
        "list the ACLs of two principals", "--principal", "User:alice", "--principal", "User:bob", "--topic", "papers"
    )
    shown("list the ACLs of a group", "--group", "readers")
    shown("list the ACLs of the cluster", "--cluster")
    shown("list the ACLs of a transactional id", "--transactional-id", "counts")


def removals(stage: Stage) -> None:
    def remove(sentence: str, *arguments: str) -> None:
        stage.step(sentence, ACLS, "--remove", *arguments)

    remove("remove one ACL", *ALICE, "--operation", "Read", "--topic", "papers", "--force")
    remove("remove it again", *ALICE, "--operation", "Read", "--topic", "papers", "--force")
    stage.step("list the ACLs that are left of a topic", ACLS, "--list", "--topic", "papers")
    remove("remove all ACLs of a topic", "--topic", "papers", "--force")
    remove("remove a prefix", "--topic", "paper-", "--resource-pattern-type", "prefixed", "--force")
    remove(
        "remove what a consumer needs",
        "--allow-principal",
        "User:bob",
        "--consumer",
        "--topic",
        "both",
        "--group",
        "both",
        "--force",
    )
    remove(
        "remove the ACLs of the cluster and of tokens",
        "--cluster",
        "--delegation-token",
        "x",
        "--user-principal",
        "User:bob",
        "--force",
    )
    remove("remove on no resource", "--force")
    stage.step("list the ACLs that are left", ACLS, "--list")


def clients(stage: Stage) -> None:
    """What alice may do: she may write and read words with the group readers, by ACLs of `additions`."""

    def topic(sentence: str, *arguments: str, user: str = "alice") -> None:
        stage.step(sentence, TOPICS, *arguments, user=user)

    for name in ("words", "secrets"):
        topic(f"create {name}", "--create", "--topic", name, "--partitions", "1", user="admin")
    topic("create a topic without the right", "--create", "--topic", "mine")
    topic("list the topics that may be described", "--list")
    topic("list all topics", "--list", user="admin")
    topic("describe a topic that may be described", "--describe", "--topic", "words")
    topic("describe a topic without the right", "--describe", "--topic", "secrets")
    topic("delete a topic without the right", "--delete", "--topic", "words")
    topic("delete a topic that may not be described", "--delete", "--topic", "secrets")
    topic("add partitions without the right", "--alter", "--topic", "words", "--partitions", "2")
    configs = ("--entity-type", "topics", "--entity-name")
    stage.step("describe a topic's settings without the right", CONFIGS, *configs, "words", "--describe", user="alice")
    alter = ("--alter", "--add-config", "flush.ms=5")
    stage.step("change a topic's settings without the right", CONFIGS, *configs, "words", *alter, user="alice")
    broker = ("--entity-type", "brokers", "--entity-name", "0")
    stage.step("change a broker's settings without the right", CONFIGS, *broker, *alter, user="alice")
    records(stage)
    groups(stage)
    stage.step("look for offsets of all topics", OFFSETS, user="alice")
    stage.step("describe directories without the right", DIRS, "--describe", "--topic-list", "words", user="alice")


def records(stage: Stage) -> None:
    def write(sentence: str, topic: str, user: str, *arguments: str) -> None:
        stage.step(
            sentence,
            PRODUCER,
            *("--topic", topic, "--sync", *arguments),
            user=user,
            settings="--producer.config",
            given="one\ntwo\n",
        )

    def read(sentence: str, topic: str, user: str, group: str) -> None:
        wanted = (
            "--topic",
            topic,
            "--from-beginning",
            "--max-messages",
            "2",
            "--timeout-ms",
            "20000",
            "--group",
            group,
        )
        stage.step(sentence, CONSUMER, *wanted, user=user, settings="--consumer.config")

    write("write", "words", "alice")
    write("write without a producer id", "words", "alice", "--producer-property", "enable.idempotence=false")
    write("write without the right", "secrets", "alice")
    plain = ("--producer-property", "enable.idempotence=false")
    write("write without the right and without a producer id", "words", "bob", *plain)
    write("write as an unknown user", "words", "nobody")
    read("read", "words", "alice", "readers")
    read("read with another group", "words", "alice", "strangers")
    read("read another topic", "secrets", "alice", "readers")
    read("read without any right", "words", "bob", "both")


def groups(stage: Stage) -> None:
    def group(sentence: str, *arguments: str, user: str = "alice") -> None:
        stage.step(sentence, GROUPS, *arguments, user=user)

    group("list the groups that may be described", "--list")
    group("list all groups", "--list", user="admin")
    group("list groups without the right", "--list", user="bob")
    group("describe a group", "--describe", "--group", "readers")
    group("describe a group without the right", "--describe", "--group", "readers", user="bob")
    group("delete a group without the right", "--delete", "--group", "readers")
    reset = ("--reset-offsets", "--group", "readers", "--topic")
    group("reset offsets", *reset, "words", "--to-earliest", "--execute")
    group("reset offsets of another topic", *reset, "secrets", "--to-earliest", "--execute")
    group("reset offsets without the right", *reset, "words", "--to-earliest", "--execute", user="bob")
    group("delete offsets without the right", "--delete-offsets", "--group", "readers", "--topic", "words")


ACTS = (users, passwords, additions, refusals, lists, clients, removals)
