"""Takes the pictures of docs/console.md: `python -m tests.broker.console.pictures FOLDER` (`make console-pictures`).

Three brokers, one of which is paused, so that producers with acks=all wait for it; consumers that keep up and some that
lag; a group that rebalances.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.broker.metadata.metadata_cache import GROUP_TOPIC
from odradek.testing import ClusterThread
from tests.broker.console.waiters import fetch_of, join_of, waiting_clients
from tests.chromium import Chromium, Page
from tests.patience import block_until

TOPICS = {"orders": 6, "payments": 3, "clicks": 12, "inventory": 3}
SETTINGS = {
    "odradek.metrics.port": "0",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "600000",
    "zookeeper.session.timeout.ms": "600000",
    "num.partitions": "3",
    "offsets.topic.num.partitions": "1",
}
HISTORY_S = 30
SIZE = (1280, 860)


@contextlib.contextmanager
def running(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Runs `work` in a thread until the end."""
    ended = threading.Event()
    thread = threading.Thread(target=work, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def produce(bootstrap: str) -> Callable[[threading.Event], None]:
    """Writes with acks=1, faster and slower by turns."""

    def work(ended: threading.Event) -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap, acks=1, client_id="shop")
        number = 0
        while not ended.wait(0.02 if number // 200 % 2 else 0.005):
            producer.send("orders", b"order %d" % number)
            producer.send("clicks", b"click %d" % number)
            number += 1
        producer.close(timeout=5)

    return work


def consume(
    bootstrap: str, topic: str, group: str, client_id: str, pause_s: float
) -> Callable[[threading.Event], None]:
    def work(ended: threading.Event) -> None:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            client_id=client_id,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
            max_poll_records=40,
        )
        while not ended.wait(pause_s):
            consumer.poll(timeout_ms=200)
        consumer.close(autocommit=False)

    return work


def write_to_all(bootstrap: str, client_id: str, topic: str) -> Callable[[threading.Event], None]:
    """Writes one record with acks=all, whose answer does not come."""

    def work(ended: threading.Event) -> None:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", client_id=client_id, retries=0, request_timeout_ms=120_000
        )
        for partition in range(TOPICS[topic]):
            producer.send(topic, b"paid", partition=partition)
        ended.wait()
        producer.close(timeout=10)

    return work


def take(page: Page, view: str, scheme: str, folder: Path) -> None:
    page.media(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
    (folder / f"console-{view}-{scheme}.png").write_bytes(page.picture())


def start_clients(stack: contextlib.ExitStack, bootstrap: str) -> None:
    for group, topic, client_id, pause_s in (
        ("billing", "orders", "billing-1", 0.05),
        ("warehouse", "orders", "warehouse-1", 1.0),
        ("recommendations", "clicks", "recommender-a", 0.1),
        ("audit", "clicks", "audit-1", 0.6),
    ):
        stack.enter_context(running(consume(bootstrap, topic, group, client_id, pause_s)))
    stack.enter_context(running(produce(bootstrap)))


def leader_of_groups(cluster: ClusterThread) -> int:
    """Waits until a broker coordinates groups. Returns its id."""
    found: list[int | None] = []

    def is_led() -> bool:
        with contextlib.suppress(ValueError):  # the topic does not exist yet
            found.append(cluster.leader(GROUP_TOPIC, 0))
        return bool(found) and found[-1] is not None

    block_until(is_led)
    assert found[-1] is not None
    return found[-1]


def begin_to_wait(stack: contextlib.ExitStack, cluster: ClusterThread, broker_id: int) -> None:
    """Pauses another broker, and lets clients of `broker_id` wait."""
    bootstrap = cluster.bootstrap_of(broker_id)
    fetches = [(fetch_of((topic, 0, 0), min_bytes=1 << 19), 11, f"{topic}-export") for topic in TOPICS]
    stack.enter_context(waiting_clients(bootstrap, *fetches, (join_of("reports"), 3, "reports-2")))
    paused = next(each for each in cluster.ids if each != broker_id)
    cluster.pause(paused)
    for client_id, topic in (("payments-api", "payments"), ("stock-sync", "inventory")):
        stack.enter_context(running(write_to_all(bootstrap, client_id, topic)))
    stack.callback(cluster.resume, paused)  # first of all at the end


def main() -> None:
    parser = argparse.ArgumentParser(description="Takes the pictures of docs/console.md.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="console-pictures-")))
        cluster = stack.enter_context(ClusterThread(3, SETTINGS))
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        admin.create_topics([NewTopic(name, partitions, 3) for name, partitions in TOPICS.items()])
        admin.close()
        busy = stack.enter_context(contextlib.ExitStack())
        start_clients(busy, cluster.bootstrap)
        coordinator = leader_of_groups(cluster)
        broker = cluster.cluster.member(coordinator).broker
        assert broker is not None
        assert broker.metrics_server is not None
        page = stack.enter_context(Chromium.started(temporary)).new_page()
        page.size(*SIZE)
        page.open(f"http://127.0.0.1:{broker.metrics_server.port}/#/groups")
        page.until_text("warehouse")
        time.sleep(HISTORY_S)  # the page collects the history that it draws
        take(page, "groups", "light", folder)
        busy.close()
        begin_to_wait(stack, cluster, coordinator)
        page.value("location.hash = '#/waiting'")
        page.until_text("stock-sync")
        page.until_text("payments-api")
        for scheme in ("light", "dark"):
            take(page, "waiting", scheme, folder)


if __name__ == "__main__":
    main()
