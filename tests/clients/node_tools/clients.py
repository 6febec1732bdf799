"""Tools that are clients themselves, and those that dump what a broker has written."""

from __future__ import annotations

from tests.clients.node_tools.stage import Stage

TOOLS = "org.apache.kafka.tools"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
REPLICAS = "org.apache.kafka.tools.ReplicaVerificationTool"

NUMBERS = {r"\d+(\.\d+)?": "N"}
OF_PLACES = r"(base|last|)[Oo]ffset|position|size|keySize|valueSize|count|(base|last|)[Ss]equence"
PLACES = {rf"\b({OF_PLACES}): -?\d+": r"\1: N"}
"""Of batches and records in a log."""


def loads(stage: Stage) -> None:
    def measure(sentence: str, name: str, arguments: str, **mask: str) -> None:
        stage.step(sentence, f"{TOOLS}.{name}", "--topic", "single", *arguments.split(), mask={**NUMBERS, **mask})

    measure("measure a producer", "ProducerPerformance", "--num-records 50 --record-size 10 --throughput -1")
    row = {r".*N.*": "ROW"}
    measure("measure a consumer", "ConsumerPerformance", "--num-records 50 --group measuring --timeout 20000", **row)
    measure("measure a share consumer", "ShareConsumerPerformance", "--num-records 5 --group sharing --timeout 3000")
    measure("measure both ends", "EndToEndLatency", "--num-records 10 --producer-acks all --record-size 10")
    verified = ("--topic", "single", "--max-messages", "20")
    stage.step("VerifiableProducer", f"{TOOLS}.VerifiableProducer", *verified, "--acks", "-1", until='"value":"19"')
    for protocol in ("classic", "consumer"):
        of_group = ("--group-id", f"verifying-{protocol}", "--group-protocol", protocol, "--reset-policy", "earliest")
        stage.step(f"VerifiableConsumer: {protocol}", f"{TOOLS}.VerifiableConsumer", *verified, *of_group)
    stage.step(
        "VerifiableShareConsumer",
        f"{TOOLS}.VerifiableShareConsumer",
        *verified,
        "--group-id",
        "sharing",
        until="shutdown_complete",
    )


def dumps(stage: Stage) -> None:
    for sentence, topic, decoder in (
        ("dump transactions", "__transaction_state-0", "--transaction-log-decoder"),
        ("dump records", "kept-0", "--print-data-log"),
    ):
        file = str(stage.data / topic / f"{0:020}.log")
        stage.step(sentence, DUMP, decoder, "--files", file, at=None, mask=PLACES, in_any_order=True)
    for formatter, topic in (
        ("OffsetsMessageFormatter", "__consumer_offsets"),
        ("GroupMetadataMessageFormatter", "__consumer_offsets"),
        ("TransactionLogMessageFormatter", "__transaction_state"),
    ):
        read = (
            "--topic",
            topic,
            "--from-beginning",
            "--timeout-ms",
            "3000",
            "--formatter",
            f"{TOOLS}.consumer.{formatter}",
        )
        stage.step(f"read by {formatter}", CONSUMER, *read, in_any_order=True)


def replicas(stage: Stage) -> None:
    """The last act: the tool goes on."""
    of_topic = ("--broker-list", stage.bootstrap, "--topics-include", "kept", "--report-interval-ms", "1000")
    stage.step("verify the replicas", REPLICAS, *of_topic, at=None, until="max lag is")
