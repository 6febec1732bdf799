"""`python -m odradek.testing.cluster_demo`: the story of an acks=all request that waits. Takes 20 seconds.

Three brokers in this process, some producers with acks=all and a consumer. Replication to a follower freezes; the
leader is killed, started again, and stopped. Meanwhile the terminal shows the partition's offsets, its in-sync replicas
and the requests that wait; then a picture is drawn. In the end, every acknowledged record must have been read once and
in order.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from odradek.testing.cluster import Cluster
from odradek.testing.cluster_demo.clients import Consumer, Producer, Waiting
from odradek.testing.cluster_demo.picture import svg
from odradek.testing.cluster_demo.samples import (
    Acknowledgement,
    Event,
    Recording,
    Sample,
    consequences,
    sample,
    seconds_without_leader,
)
from odradek.testing.in_process_cluster import in_process_cluster

TOPIC = "orders"
PRODUCERS = 40
RECORDS_PER_SECOND = 80
SAMPLE_S = 0.04
ROW_S = 0.5
BAR = 40
PATIENCE_S = 60.0

Step = Callable[[], Coroutine[Any, Any, None]]


class Demo:
    """One run of the story on a cluster. `pace` stretches its times: 0.1 is ten times as fast."""

    def __init__(self, cluster: Cluster, out: TextIO, pace: float) -> None:
        self._cluster = cluster
        self._out = out
        self._pace = pace
        self._began_s = asyncio.get_running_loop().time()
        self._samples: list[Sample] = []
        self._acknowledgements: list[Acknowledgement] = []
        self._events: list[Event] = []
        self._offered: list[list[bytes]] = [[] for _ in range(PRODUCERS)]
        self._producers = [Producer(cluster.bootstrap, TOPIC, self._acknowledged) for _ in self._offered]
        self._consumer = Consumer(cluster.bootstrap, TOPIC, lambda consumer: len(consumer.values) >= self._count)
        self._broker = 0
        """The broker to which something was done last."""

    @property
    def _count(self) -> int:
        return sum(map(len, self._offered))

    @property
    def _now_s(self) -> float:
        return asyncio.get_running_loop().time() - self._began_s

    async def run(self) -> Recording:
        """Plays the story and returns what was seen."""
        print(f"{'time':>6} {'log end':>8} {'committed':>9} {'read':>6}  {'in sync':8}  waiting", file=self._out)
        clients = [asyncio.create_task(client.run()) for client in (*self._producers, self._consumer)]
        watching = [asyncio.create_task(self._watch()), asyncio.create_task(self._offer())]
        for at_s, step in self._story():
            await asyncio.sleep(max(at_s * self._pace - self._now_s, 0))
            await step()
        watching[1].cancel()
        for client in (*self._producers, self._consumer):
            client.end()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*clients)
        watching[0].cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        return Recording(self._cluster.ids, self._samples, self._acknowledgements, self._events)

    # The story

    def _story(self) -> Sequence[tuple[float, Step]]:
        return (
            (2.5, self._freeze),
            (7.0, self._thaw),
            (9.5, self._kill),
            (12.5, self._start),
            (15.0, self._stop),
            (17.0, self._start),
            (19.5, self._rest),
        )

    # Each begins once all is well again, on a slow machine later than in the table.

    async def _freeze(self) -> None:
        await self._cluster.wait_until_stable(within=PATIENCE_S)
        leader = await self._cluster.wait_for_leader(TOPIC, 0)
        self._broker = max(broker_id for broker_id in self._cluster.ids if broker_id != leader)
        self._note(
            f"replication to broker {self._broker} freezes: requests wait until it leaves the ISR, "
            "replica.lag.time.max.ms later"
        )
        self._cluster.freeze_replication(self._broker)

    async def _thaw(self) -> None:
        self._note(f"replication goes on: broker {self._broker} catches up, and is in sync again")
        self._cluster.thaw(self._broker)

    async def _kill(self) -> None:
        await self._cluster.wait_until_stable(within=PATIENCE_S)
        self._broker = await self._cluster.wait_for_leader(TOPIC, 0)
        self._note(f"broker {self._broker}, the leader, is killed: another one is elected when its session has expired")
        self._cluster.kill(self._broker)

    async def _start(self) -> None:
        self._note(f"broker {self._broker} starts again, and catches up")
        await self._cluster.start(self._broker)

    async def _stop(self) -> None:
        await self._cluster.wait_until_stable(within=PATIENCE_S)
        self._broker = await self._cluster.wait_for_leader(TOPIC, 0)
        self._note(f"broker {self._broker}, the leader, stops: it hands its leadership over, and hardly anything waits")
        await self._cluster.stop(self._broker)

    async def _rest(self) -> None:
        await self._cluster.wait_until_stable(within=PATIENCE_S)
        self._note("the producers end")

    # What is seen

    async def _offer(self) -> None:
        """Offers records to the producers in turn."""
        number = 0
        while True:
            which = number % PRODUCERS
            value = b"%d:%d" % (which, len(self._offered[which]))
            self._offered[which].append(value)
            self._producers[which].offer(value)
            number += 1
            await asyncio.sleep(max(number / RECORDS_PER_SECOND - self._now_s, 0))

    def _acknowledged(self, record: Waiting) -> None:
        now_s = asyncio.get_running_loop().time()
        self._acknowledgements.append(Acknowledgement(now_s - self._began_s, now_s - record.offered_s))

    async def _watch(self) -> None:
        next_row_s = 0.0
        while True:
            seen = sample(self._cluster, TOPIC, self._now_s, self._consumer.position)
            for text in consequences(self._samples[-1], seen) if self._samples else ():
                self._note(text, is_done_to_it=False)
            self._samples.append(seen)
            if seen.at_s >= next_row_s:
                next_row_s += ROW_S * self._pace
                print(row(seen), file=self._out, flush=True)
            await asyncio.sleep(SAMPLE_S * self._pace)

    def _note(self, text: str, *, is_done_to_it: bool = True) -> None:
        self._events.append(Event(self._now_s, text, is_done_to_it))
        print(f"{self._now_s:5.1f}s {'==' if is_done_to_it else '--'} {text}", file=self._out, flush=True)

    def verdict(self, recording: Recording) -> str:
        """Returns what has become of the records. Raises AssertionError if one was lost, repeated or misplaced."""
        read: list[list[bytes]] = [[] for _ in self._offered]
        for value in self._consumer.values:
            read[int(value.partition(b":")[0])].append(value)
        assert read == self._offered, "records were lost, repeated or reordered"
        longest_s = max(each.waited_s for each in recording.acknowledgements)
        waits_s = sorted(each.waited_s for each in recording.acknowledgements)
        return (
            f"{len(waits_s)} records acknowledged, each read once and in order. An acknowledgement took "
            f"{1000 * waits_s[len(waits_s) // 2]:.0f} ms in the median, {longest_s:.1f} s at most. There was no leader "
            f"for {seconds_without_leader(recording.samples):.1f} s."
        )


def row(seen: Sample) -> str:
    """Returns one line of the terminal's picture: time runs downwards."""
    end, high_watermark = ("-" if offset is None else str(offset) for offset in (seen.end, seen.high_watermark))
    bar = "#" * min(seen.purgatory_size // 4 + (seen.purgatory_size > 0), BAR)
    isr = " ".join(str(broker_id) if broker_id in seen.isr else "." for broker_id in seen.roles)
    count = seen.purgatory_size or ""
    return f"{seen.at_s:5.1f}s {end:>8} {high_watermark:>9} {seen.read:>6}  {isr:8}  {bar} {count}".rstrip()


async def play(
    out: TextIO, picture: Path, pace: float = 1.0, settings: Mapping[str, object] | None = None
) -> Recording:
    """Plays the story and draws the picture. Returns what was seen."""
    async with in_process_cluster(settings=settings) as cluster:
        await cluster.create_topic(TOPIC)
        demo = Demo(cluster, out, pace)
        recording = await demo.run()
        print(f"\n{demo.verdict(recording)}", file=out)
    await asyncio.to_thread(picture.write_text, svg(recording))
    print(f"picture: {picture}", file=out)
    return recording


def main() -> int:
    """Runs the demo. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m odradek.testing.cluster_demo", description="A cluster whose brokers fail, in 20 seconds."
    )
    parser.add_argument("picture", nargs="?", type=Path, default=Path("cluster-demo.svg"), help="the SVG file to write")
    arguments = parser.parse_args()
    asyncio.run(play(sys.stdout, arguments.picture))
    return 0


if __name__ == "__main__":
    sys.exit(main())
