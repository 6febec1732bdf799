"""Tools for the cluster, its features and settings, and the subscriptions to clients' metrics."""

from __future__ import annotations

from odradek.protocol.messages.configs import DescribeConfigsRequest
from odradek.protocol.wire_codes import ConfigResourceType
from tests.clients.node_tools.stage import Stage
from tests.patience import block_until
from tests.wire.blocking_client import Client

ACLS = "org.apache.kafka.tools.AclCommand"
APIS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
METRICS = "org.apache.kafka.tools.ClientMetricsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"


def cluster(stage: Stage) -> None:
    at = ("--bootstrap-server", stage.bootstrap)
    stage.step("show the cluster's id", CLUSTER, "cluster-id", *at, at=None)
    stage.step("list the endpoints", CLUSTER, "list-endpoints", *at, at=None)
    stage.step(
        "list the endpoints with fenced brokers", CLUSTER, "list-endpoints", "--include-fenced-brokers", *at, at=None
    )
    stage.step(
        "list the endpoints of controllers",
        CLUSTER,
        "list-endpoints",
        "--bootstrap-controller",
        stage.bootstrap,
        at=None,
    )
    stage.step("unregister a broker that is not there", CLUSTER, "unregister", "--id", "7", *at, at=None)
    stage.step("show the APIs", APIS, in_any_order=True)
    places = {
        r"HighWatermark: \d+": "HighWatermark: N",
        r"(CONTROLLER://[\d.]+):\d+": r"\1:PORT",
        r"^1 ID \d+": "1 ID N",
    }
    stage.step("describe the quorum", QUORUM, "describe", "--status", mask=places)
    stage.step("describe the replication of the quorum", QUORUM, "describe", "--replication", mask=places)


def features(stage: Stage) -> None:
    def feature(sentence: str, *arguments: str) -> None:
        stage.step(sentence, FEATURES, *arguments, in_any_order=True, mask={r"Epoch: \d+": "Epoch: N"})

    feature("describe the features", "describe")
    feature("upgrade a feature to its level", "upgrade", "--feature", "group.version=1")
    feature("upgrade a feature too far", "upgrade", "--feature", "group.version=9")
    feature("upgrade a feature downwards", "upgrade", "--feature", "group.version=0")
    feature("upgrade a feature that is not there", "upgrade", "--feature", "none.version=1")
    feature("upgrade a feature without a level", "upgrade", "--feature", "group.version")
    feature("try to downgrade a feature", "downgrade", "--feature", "transaction.version=1", "--dry-run")
    feature("downgrade a feature", "downgrade", "--feature", "transaction.version=1")
    feature("describe the features after a downgrade", "describe")
    feature("disable a feature", "disable", "--feature", "transaction.version")
    feature("upgrade a feature", "upgrade", "--feature", "transaction.version=2")
    feature("describe the features in the end", "describe")
    feature("upgrade to a release", "upgrade", "--release-version", "4.0")
    feature("upgrade to a release that is none", "upgrade", "--release-version", "9.9")
    stage.step("map a release to features", FEATURES, "version-mapping", "--release-version", "4.0", in_any_order=True)
    stage.step("show what a feature depends on", FEATURES, "feature-dependencies", "--feature", "group.version=1")


def settings(stage: Stage) -> None:
    def entity(kind: str, name: str, what: str) -> None:
        def config(sentence: str, *arguments: str) -> None:
            stage.step(f"{kind}: {sentence}", CONFIGS, "--entity-type", kind, "--entity-name", name, *arguments)

        setting = what.partition("=")[0]
        config("describe one without settings", "--describe")
        config("change settings", "--alter", "--add-config", what)
        if kind == "brokers":
            block_until(lambda: setting_of_broker(stage, setting) == what.partition("=")[2])
        config("describe one", "--describe")
        if kind != "brokers":
            config("describe all", "--describe", "--all")
        config("change an unknown setting", "--alter", "--add-config", "no.such=1")
        config("change a setting to a bad value", "--alter", "--add-config", f"{setting}=x")
        config("remove a setting", "--alter", "--delete-config", setting)
        config("describe one in the end", "--describe")
        stage.step(f"{kind}: describe everything", CONFIGS, "--entity-type", kind, "--describe", in_any_order=True)

    entity("topics", "words", "retention.ms=2000000")
    entity("brokers", "1", "log.cleaner.threads=2")
    entity("groups", "reader", "consumer.session.timeout.ms=50000")
    entity("client-metrics", "producers", "interval.ms=1000")
    for kind, name, quota in (
        ("users", "alice", "producer_byte_rate=1000"),
        ("clients", "app", "consumer_byte_rate=1000"),
        ("ips", "127.0.0.9", "connection_creation_rate=10"),
    ):
        of_entity = ("--entity-type", kind, "--entity-name", name)
        stage.step(f"{kind}: give a quota", CONFIGS, *of_entity, "--alter", "--add-config", quota)
        stage.step(f"{kind}: describe one with a quota", CONFIGS, *of_entity, "--describe")
    stage.step("describe the brokers' defaults", CONFIGS, "--entity-type", "brokers", "--entity-default", "--describe")
    stage.step("describe the settings of a kind that is none", CONFIGS, "--entity-type", "stars", "--describe")
    beyond = "consumer.session.timeout.ms=1"
    stage.step(
        "change a group's setting beyond its bounds",
        CONFIGS,
        "--entity-type",
        "groups",
        "--entity-name",
        "reader",
        "--alter",
        "--add-config",
        beyond,
    )
    stage.step(
        "change a setting of share groups",
        CONFIGS,
        "--entity-type",
        "groups",
        "--entity-name",
        "sharing",
        "--alter",
        "--add-config",
        "share.auto.offset.reset=earliest",
    )


def setting_of_broker(stage: Stage, setting: str) -> str | None:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="1", configuration_keys=[setting]
    )
    with Client(stage.bootstrap) as client:
        (answer,) = client.ask(DescribeConfigsRequest(resources=[resource])).results
    value: str | None = answer.configs[0].value
    return value


def client_metrics(stage: Stage) -> None:
    stage.step("list no subscriptions", METRICS, "--list")
    given = ("--metrics", "org.apache.kafka.producer.", "--interval", "30000", "--match", "client_id=app.*")
    stage.step("subscribe to clients' metrics", METRICS, "--alter", "--name", "apps", *given)
    stage.step("subscribe with a generated name", METRICS, "--alter", "--generate-name", "--metrics", "*")
    stage.step("subscribe too often", METRICS, "--alter", "--name", "often", "--interval", "1")
    stage.step("subscribe to clients of a bad pattern", METRICS, "--alter", "--name", "odd", "--match", "client=x")
    stage.step("describe a subscription", METRICS, "--describe", "--name", "apps")
    stage.step("describe a subscription that is not there", METRICS, "--describe", "--name", "none")
    stage.step("describe the subscriptions", METRICS, "--describe", in_any_order=True)
    stage.step("list subscriptions", METRICS, "--list", in_any_order=True)
    stage.step("end a subscription", METRICS, "--delete", "--name", "apps")
    stage.step("end a subscription that is not there", METRICS, "--delete", "--name", "none")


def secured(stage: Stage) -> None:
    stage.step("list ACLs without an authorizer", ACLS, "--list")
    stage.step(
        "create a delegation token",
        TOKENS,
        "--create",
        "--max-life-time-period",
        "-1",
        "--command-config",
        stage.file("client.properties", ""),
    )
    stage.step(
        "describe delegation tokens", TOKENS, "--describe", "--command-config", stage.file("client.properties", "")
    )
