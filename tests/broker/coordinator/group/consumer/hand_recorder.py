"""Plays the scripts of scripts_by_hand.py with a broker, and records what one of Apache Kafka 4.4.0 answers.

    python -m tests.broker.coordinator.group.consumer.hand_recorder HOST:PORT POLICY > FILE

POLICY is the broker's group.consumer.migration.policy. The lines of all policies are
tests/vectors/consumer_groups/by_hand.jsonl. The broker is a new one with the settings of BROKER_SETTINGS and those of
the policy in SETTINGS_OF.

Each line is a script; its steps are those of recorder.py and migration_recorder.py, with all requests in the form

    [kind, request, answers]        answers by the number of their request

and the kinds "commit", "fetch" (all offsets) and "delete" (the group) in addition. Ids that the broker has made are
"$N", N being the number of the request.
"""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.broker.coordinator.group.consumer.recorder import AT_ONCE, BEHIND_S, LOADED_S, RESOLVED_S, until_ready
from tests.broker.coordinator.group.consumer.scripts_by_hand import SCRIPTS, ScriptByHand, Step
from tests.broker.coordinator.group.consumer.wire_group import WireGroup
from tests.wire.blocking_client import Client

BROKER_SETTINGS = {
    "group.consumer.assignors": "range,uniform",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.assignment.interval.ms": "0",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
SETTINGS_OF = {
    "bidirectional": {},
    "upgrade": {"group.consumer.migration.policy": "upgrade"},
    "downgrade": {"group.consumer.migration.policy": "downgrade"},
    "disabled": {"group.consumer.migration.policy": "disabled", "group.consumer.max.size": "2"},
}
CLASSIC = ("join", "sync", "stay", "leave")
QUIET_S, ANSWERED_S = 0.3, 20
LONGEST_CHOSEN_ID = 10
Answers = dict[str, dict[str, Any]]


class HandPlayer:
    """Plays one script. `pause(ms)` lets time pass; `resolve()` lets the broker finish what a heartbeat asked for.

    `quiet_s`: answers have come when none comes for so long.
    """

    def __init__(
        self, bootstrap: str, group: WireGroup, pause: Callable[[int], object], resolve: Callable[[], object]
    ) -> None:
        self._bootstrap = bootstrap
        self._group = group
        self._pause = pause
        self._resolve = resolve
        self._parked: dict[int, tuple[str, Client]] = {}
        self._numbers = 0
        self._made: dict[str, str] = {}
        """The ids that the broker has made, by their names."""
        self._protocol = ""

    def begin(self, script: ScriptByHand) -> None:
        self._group.create_topics(script.topics)
        if script.settings:
            self._group.configure(script.settings)
            self._pause(0)

    def play(self, step: Step, awaited: Collection[int] | None = None) -> Step:
        """Returns the step as it is recorded. `awaited`: the requests that must be answered; without, all that are
        answered within QUIET_S.
        """
        kind, *arguments = step
        if kind == "described":
            return [kind, self._named(self._group.describe_any())]
        if kind == "wait":
            self._pause(arguments[0])
        elif kind == "resolved":
            self._resolve()
        elif kind == "partitions":
            self._group.add_partitions(*arguments)
        elif kind == "deleted":
            self._group.delete_topic(*arguments)
        else:
            return [kind, arguments[0], self._answers(kind, self._real(arguments[0]), awaited)]
        return step

    def end(self) -> None:
        for _, connection in self._parked.values():
            connection.close()

    def _answers(self, kind: str, fields: dict[str, Any], awaited: Collection[int] | None) -> Answers:
        number, self._numbers = self._numbers, self._numbers + 1
        answers: Answers = {}
        if kind in CLASSIC:
            connection = Client(self._bootstrap, client_id="classic")
            connection.send(*self._group.classic(kind, fields, self._protocol))
            self._parked[number] = kind, connection
        elif kind == "delete":
            answers[str(number)] = self._group.delete()
        else:
            answers[str(number)] = self._named(getattr(self._group, kind)(fields), number)
        wanted = None if awaited is None else set(awaited) & self._parked.keys()
        while ready := self._ready(wanted):
            for each in sorted(ready):
                asked, connection = self._parked.pop(each)
                answer = self._group.answered(asked, connection.receive())
                connection.close()
                self._protocol = answer.get("protocol", self._protocol)
                answers[str(each)] = self._named(answer, each)
            wanted = None if wanted is None else wanted - ready
        return dict(sorted(answers.items(), key=lambda item: int(item[0])))

    def _ready(self, wanted: Collection[int] | None) -> set[int]:
        numbers = {connection.raw.socket: number for number, (_, connection) in self._parked.items()}
        wait_s = QUIET_S if wanted is None else ANSWERED_S if wanted else 0
        found, _, _ = select.select(list(numbers), [], [], wait_s) if numbers else ([], [], [])
        return {numbers[each] for each in found}

    # --- ids ----------------------------------------------------------------------------------------------------

    def _real(self, value: Any) -> Any:
        """Returns a request with the ids that the broker has made."""
        return self._with_ids(value, self._made)

    def _named(self, answer: Any, number: int | None = None) -> Any:
        """Returns an answer with the names of ids. `number`: of the request whose answer may have a new one."""
        made = answer.get("member") if number is not None else None
        if made and made not in self._made.values() and len(made) > LONGEST_CHOSEN_ID:
            self._made[f"${number}"] = made
        return self._with_ids(answer, {real: name for name, real in self._made.items()})

    def _with_ids(self, value: Any, ids: dict[str, str]) -> Any:
        if isinstance(value, dict):
            return {self._with_ids(key, ids): self._with_ids(each, ids) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._with_ids(each, ids) for each in value]
        return ids.get(value, value) if isinstance(value, str) else value


def _sleep(ms: int) -> None:
    time.sleep(max(ms / 1000, BEHIND_S))


def main(bootstrap: str, policy: str) -> None:
    until_ready(bootstrap)
    time.sleep(LOADED_S)
    begun_s = int(time.time())

    def recorded(numbered: tuple[int, str]) -> dict[str, Any]:
        number, sentence = numbered
        script = SCRIPTS[sentence]
        with Client(bootstrap) as client:
            group = WireGroup(client, f"h{number}-{begun_s}-", BEHIND_S)
            player = HandPlayer(bootstrap, group, _sleep, lambda: time.sleep(RESOLVED_S))
            player.begin(script)
            steps = [player.play(json.loads(json.dumps(step))) for step in script.steps]
            player.end()
        return {"script": sentence, "steps": steps}

    mine = [(number, each) for number, each in enumerate(SCRIPTS) if SCRIPTS[each].policy == policy]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for line in pool.map(recorded, mine):
            print(json.dumps(line, separators=(",", ":")), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
