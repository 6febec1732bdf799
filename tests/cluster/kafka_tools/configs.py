"""ConfigCommand: settings of brokers, topics, users and clients."""

from __future__ import annotations

from tests.cluster.kafka_tools.stage import BROKER, TOPIC, Stage

CONFIGS = "kafka.admin.ConfigCommand"


def configs(stage: Stage) -> None:
    of_brokers(stage)
    of_topics(stage)
    throttles(stage)
    of_others(stage)


def of_brokers(stage: Stage) -> None:
    def one(sentence: str, *arguments: str, broker: str = "1") -> None:
        stage.step(sentence, CONFIGS, "--entity-type", "brokers", "--entity-name", broker, *arguments)

    def default(sentence: str, *arguments: str) -> None:
        stage.step(sentence, CONFIGS, "--entity-type", "brokers", "--entity-default", *arguments)

    one("describe a broker without dynamic settings", "--describe")
    default("describe the brokers' defaults while there are none", "--describe")
    one("change a broker's settings", "--alter", "--add-config", "log.cleaner.threads=2,message.max.bytes=2000000")
    stage.until_configured(BROKER, "1", log__cleaner__threads="2", message__max__bytes="2000000")
    one("describe a broker", "--describe")
    default("change the brokers' defaults", "--alter", "--add-config", "message.max.bytes=3000000")
    stage.until_configured(BROKER, "", message__max__bytes="3000000")
    default("describe the brokers' defaults", "--describe")
    one("describe another broker", "--describe", broker="2")
    one("describe all settings of a broker", "--describe", "--all")
    one("remove a broker's setting", "--alter", "--delete-config", "message.max.bytes")
    stage.until_configured(BROKER, "1", message__max__bytes=None)
    one("remove a setting that a broker does not have", "--alter", "--delete-config", "log.retention.ms")
    one("describe a broker after a removal", "--describe")
    default("remove a default", "--alter", "--delete-config", "message.max.bytes")
    stage.until_configured(BROKER, "", message__max__bytes=None)
    one("change a setting that is read only", "--alter", "--add-config", "broker.id=9")
    one("change a setting of all brokers for one", "--alter", "--add-config", "log.dirs=/elsewhere")
    one("change a setting to a bad value", "--alter", "--add-config", "message.max.bytes=much")
    one("change an unknown setting", "--alter", "--add-config", "no.such=1", broker="3")
    stage.until_listed(BROKER, "3", "no.such")
    one("describe a broker whose id is no number", "--describe", broker="one")
    stage.step("describe all brokers", CONFIGS, "--entity-type", "brokers", "--describe")
    one("remove the last setting", "--alter", "--delete-config", "log.cleaner.threads")
    stage.until_configured(BROKER, "1", log__cleaner__threads=None)


def of_topics(stage: Stage) -> None:
    def topic(sentence: str, *arguments: str, name: str = "placed") -> None:
        stage.step(sentence, CONFIGS, "--entity-type", "topics", "--entity-name", name, *arguments)

    topic("describe a topic without settings of its own", "--describe")
    lists = "retention.ms=1000000,cleanup.policy=[compact,delete]"
    topic("change a topic's settings", "--alter", "--add-config", lists)
    stage.until_configured(TOPIC, "placed", retention__ms="1000000", cleanup__policy="compact,delete")
    topic("describe a topic's settings", "--describe")
    topic("describe all settings of a topic", "--describe", "--all")
    topic("remove a topic's setting", "--alter", "--delete-config", "cleanup.policy")
    stage.until_configured(TOPIC, "placed", cleanup__policy=None)
    topic("remove a setting that a topic does not have", "--alter", "--delete-config", "flush.ms")
    topic("change a topic's setting to a bad value", "--alter", "--add-config", "cleanup.policy=burn")
    topic("change an unknown setting of a topic", "--alter", "--add-config", "no.such=1")
    topic("change and remove", "--alter", "--add-config", "flush.ms=5", "--delete-config", "retention.ms")
    stage.until_configured(TOPIC, "placed", flush__ms="5", retention__ms=None)
    topic("describe a topic's settings in the end", "--describe")
    topic("describe settings of a topic that is not there", "--describe", name="nothing")
    topic("change a topic that is not there", "--alter", "--add-config", "flush.ms=5", name="nothing")
    values = stage.file("settings.properties", "segment.bytes=2000000\nflush.messages=7\n")
    topic("change a topic's settings by a file", "--alter", "--add-config-file", values)
    stage.until_configured(TOPIC, "placed", segment__bytes="2000000", flush__messages="7")
    topic("describe what a file has changed", "--describe")
    stage.step(
        "describe the settings of all topics", CONFIGS, "--entity-type", "topics", "--describe", in_any_order=True
    )


def throttles(stage: Stage) -> None:
    def topic(sentence: str, *arguments: str) -> None:
        stage.step(sentence, CONFIGS, "--entity-type", "topics", "--entity-name", "tuned", *arguments)

    def broker(sentence: str, *arguments: str) -> None:
        stage.step(sentence, CONFIGS, "--entity-type", "brokers", "--entity-name", "2", *arguments)

    of_replicas = {
        "leader__replication__throttled__replicas": "0:1,1:3",
        "follower__replication__throttled__replicas": "*",
    }
    replicas = "{}.replication.throttled.replicas={}".format
    rate = "{}.replication.throttled.rate={}".format
    topic(
        "throttle replicas", "--alter", "--add-config", f"{replicas('leader', '[0:1,1:3]')},{replicas('follower', '*')}"
    )
    stage.until_configured(TOPIC, "tuned", **of_replicas)
    topic("describe throttled replicas", "--describe")
    topic("throttle replicas that are none", "--alter", "--add-config", replicas("leader", "[0:1,x]"))
    topic(
        "stop throttling",
        "--alter",
        "--delete-config",
        "leader.replication.throttled.replicas,follower.replication.throttled.replicas",
    )
    stage.until_configured(TOPIC, "tuned", **dict.fromkeys(of_replicas))
    broker("throttle a broker", "--alter", "--add-config", f"{rate('leader', 1000000)},{rate('follower', 1000000)}")
    stage.until_listed(BROKER, "2", "leader.replication.throttled.rate", "follower.replication.throttled.rate")
    broker("describe a throttled broker", "--describe")
    broker("throttle a broker to less than nothing", "--alter", "--add-config", rate("leader", -1))
    broker("throttle a broker to no number", "--alter", "--add-config", rate("leader", "slow"))
    broker(
        "stop throttling a broker",
        "--alter",
        "--delete-config",
        "leader.replication.throttled.rate,follower.replication.throttled.rate",
    )


def of_others(stage: Stage) -> None:
    for kind, name in (("users", "alice"), ("clients", "app"), ("ips", "127.0.0.9")):
        entity = ("--entity-type", kind, "--entity-name", name)
        quota = "connection_creation_rate=10" if kind == "ips" else "producer_byte_rate=1000"
        stage.step(f"describe {kind}", CONFIGS, *entity, "--describe")
        stage.step(f"give {kind} a quota", CONFIGS, *entity, "--alter", "--add-config", quota)
        stage.step(f"describe {kind} with a quota", CONFIGS, *entity, "--describe")
        stage.step(f"take the quota of {kind}", CONFIGS, *entity, "--alter", "--delete-config", quota.partition("=")[0])
