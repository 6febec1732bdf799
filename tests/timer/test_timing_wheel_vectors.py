"""What Apache Kafka's SystemTimer and TimingWheel did, step by step, replayed on ours
(tests/vectors/timing_wheel.json).

If buckets of two levels expire in the same millisecond (`ties`), their order is that of Java's heap. From there to the
end of the script, tasks are compared as sets.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.timer.recording_tasks import RecordingTask, WheelHarness

SCRIPTS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "vectors" / "timing_wheel.json").read_text(encoding="utf-8")
)


class Replay:
    """One script on one timer."""

    def __init__(self, script: dict[str, Any], by_bucket: bool) -> None:
        self.harness = WheelHarness(script["tickMs"], script["wheelSize"], script["startMs"])
        self.tasks: dict[str, RecordingTask] = {}
        self.by_bucket = by_bucket

    def take(self, step: dict[str, Any]) -> bool | None:
        """Executes the step; for an advance, returns whether the timer reports that it advanced."""
        self.harness.ran.clear()
        self.harness.buckets.clear()
        match step["op"]:
            case "add":
                task = self.tasks.setdefault(step["task"], self.harness.task(step["task"], 0))
                task.delay_ms = step["delayMs"]
                self.harness.timer.add(task)
            case "cancel":
                self.tasks[step["task"]].cancel()
            case "advance" if self.by_bucket:
                self.harness.move_to(step["toMs"])
                return bool(self.harness.buckets)
            case "advance":
                self.harness.clock.advance(step["toMs"] - self.harness.clock.now_ms())
                return self.harness.timer.advance_clock()
        return None

    def layout(self) -> list[dict[str, Any]]:
        """Each level's clock and its buckets with tasks, in the format of the vectors."""
        return [
            {
                "tickMs": wheel.tick_ms,
                "currentTimeMs": wheel.current_time_ms,
                "buckets": [
                    {"index": index, "expiration": bucket.expiration_ms, "tasks": names}
                    for index, bucket in enumerate(wheel.buckets)
                    if (names := [task.name for task in bucket.tasks() if isinstance(task, RecordingTask)])
                ],
            }
            for wheel in self.harness.levels()
        ]


def replay(script: dict[str, Any], by_bucket: bool) -> int:
    """Compares every step; returns their number."""
    state = Replay(script, by_bucket)
    ordered = True
    for number, step in enumerate(script["steps"]):
        at = f"{script['name']}, step {number}: {step['op']}"
        advanced = state.take(step)
        state.harness.timer.check()
        ordered = ordered and not step.get("ties", False)
        ran = list(state.harness.ran)
        timer = state.harness.timer
        assert (ran if ordered else sorted(ran)) == (step["ran"] if ordered else sorted(step["ran"])), at
        assert (timer.size, timer.queued_buckets) == (step["size"], step["queued"]), at
        assert timer.next_expiration_ms == step["nextExpiration"], at
        if step["op"] == "advance":
            assert advanced == step["advanced"], at
            assert not by_bucket or state.harness.buckets == step["buckets"], at
        if "wheels" in step:
            assert state.layout() == step["wheels"], at
    return len(script["steps"])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script["name"])
def test_the_wheel_behaves_like_kafkas_bucket_by_bucket(script: dict[str, Any]) -> None:
    assert replay(script, by_bucket=True) == len(script["steps"]) > 0


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script["name"])
def test_advance_clock_behaves_like_kafkas(script: dict[str, Any]) -> None:
    assert replay(script, by_bucket=False) == len(script["steps"]) > 0


def test_every_script_of_the_vectors_is_present() -> None:
    assert len(SCRIPTS) == 52
    assert sum(script["layout"] for script in SCRIPTS) == 22
