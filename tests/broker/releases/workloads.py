"""What the Java programs of a release do while they are recorded. The topic is created by the first record."""

from __future__ import annotations

from tests.broker.releases.released_broker import ReleasedBroker
from tests.clients.recorded_workloads import COUNT, GROUP
from tests.clients.workload import text_records


def java(released: ReleasedBroker, bootstrap: str) -> None:
    """Writes, reads in a group, describes it, and asks for offsets as the programs of this release do."""
    texts = [(record.value or b"").decode() for record in text_records(COUNT)]
    lines = [f"{number} {text}" for number, text in enumerate(texts)]
    produce = ["--broker-list", bootstrap, "--topic", "orders", "--compression-codec", "lz4"]
    released.run("kafka.tools.ConsoleProducer", *produce, stdin="".join(f"{line}\n" for line in lines).encode())
    consume = ["--bootstrap-server", bootstrap, "--topic", "orders", "--from-beginning"]
    in_group = ["--consumer-property", f"group.id={GROUP}", "--max-messages", str(COUNT)]
    read = released.run("kafka.tools.ConsoleConsumer", *consume, *in_group)
    assert sorted(read.splitlines()) == sorted(lines)
    groups = ["--bootstrap-server", bootstrap, "--group", GROUP, "--describe"]
    assert "orders" in released.run("kafka.admin.ConsumerGroupCommand", *groups)
    offsets = ["--broker-list", bootstrap, "--topic", "orders", "--time", "-1"]
    assert "orders:" in released.run("kafka.tools.GetOffsetShell", *offsets)
    assert "Produce(0)" in released.run("kafka.admin.BrokerApiVersionsCommand", "--bootstrap-server", bootstrap)
