"""What an open page costs a broker: `python -m tests.broker.console.cost` (`make console-cost`).

A broker process with many topics and waiting requests, and no other work. Its processor time is measured without a
page, and with a page open on each view; how long an answer takes is printed beside.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
import urllib.request
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic

from tests.broker.console.waiters import fetch_of, waiting_clients
from tests.chromium import Chromium
from tests.spawned_broker import spawned_broker

VIEWS = ("overview", "waiting", "topics", "groups", "connections", "settings")
PER_REQUEST = 500
ROW = "{:<24} {:>16} {:>14}"


def processor_s(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def percent_of_core(pid: int, seconds: float) -> float:
    began, used = time.monotonic(), processor_s(pid)
    time.sleep(seconds)
    return 100 * (processor_s(pid) - used) / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what an open page of the console costs a broker.")
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--waiting", type=int, default=200, help="clients whose fetch waits")
    parser.add_argument("--seconds", type=float, default=15)
    asked = parser.parse_args()
    with contextlib.ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="console-cost-")))
        broker = stack.enter_context(spawned_broker(temporary / "data", with_metrics=True))
        url = (broker.metrics_url or "").removesuffix("/metrics")
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        for start in range(0, asked.topics, PER_REQUEST):
            numbers = range(start, min(start + PER_REQUEST, asked.topics))
            admin.create_topics([NewTopic(f"topic-{number:05}", 1, 1) for number in numbers])
        admin.close()
        fetches = [(fetch_of((f"topic-{n % asked.topics:05}", 0, 0)), 11, f"client-{n}") for n in range(asked.waiting)]
        stack.enter_context(waiting_clients(broker.bootstrap, *fetches))
        time.sleep(5)
        print(f"{asked.topics} topics, {asked.waiting} waiting fetches; percent of a core over {asked.seconds:g} s")
        print(ROW.format("page", "of a core", "per answer"))
        pid = broker.process.pid
        print(ROW.format("none", f"{percent_of_core(pid, asked.seconds):.2f} %", ""))
        chromium = stack.enter_context(Chromium.started(temporary))
        for view in VIEWS:
            page = chromium.new_page()
            page.open(f"{url}/#/{view}")
            page.until_text("live")
            time.sleep(2)
            percent = percent_of_core(pid, asked.seconds)
            page.close()
            print(ROW.format(view, f"{percent:.2f} %", f"{answer_ms(url, view):.1f} ms"))


def answer_ms(url: str, view: str) -> float:
    """How long an answer of the view takes, at best of five."""
    times = []
    for _ in range(5):
        began = time.monotonic()
        with urllib.request.urlopen(f"{url}/api/{view}", timeout=20) as answer:
            answer.read()
        times.append(time.monotonic() - began)
    return 1000 * min(times)


if __name__ == "__main__":
    main()
