"""The invariants of what operators change while a cluster runs.

    settings      In the end the store, all brokers and the logs have the value of each setting that was confirmed last.
                  A change without an answer may have its effect, or have it up to LATE_US later.
    directories   In the end no replica moves, and each is in one log directory. If its broker was not restarted since
                  the last confirmed request to move it, it is where that has asked for.

A move that has begun may be given up when the broker restarts (the folder that it writes may be lost with the power),
and when its disk is full.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from tests.simulation.final_state import FinalState
from tests.simulation.history import History, Outcome, Started
from tests.simulation.topic_invariants import LATE_US
from tests.simulation.upkeep_history import DiskFilled, Move, Setting, SettingChange
from tests.simulation.violation import Violation


def settings_are_in_force(history: History, final: FinalState) -> Iterator[Violation]:
    """settings"""
    changes: dict[Setting, list[SettingChange]] = defaultdict(list)
    for change in history.of(SettingChange):
        if change.outcome is not Outcome.FAILED:
            changes[change.setting].append(change)
    for setting, of_setting in changes.items():
        allowed = _allowed(of_setting)
        found = [(where, value) for where, of_place, value in final.settings if of_place == setting]
        for where, value in found:
            if allowed is not None and value not in allowed:
                text = f"{where} has {value} for {setting}, which is none of {allowed}"
                yield Violation("settings", text, tuple(of_setting[-2:]))
                break
        if len({value for _, value in found}) > 1:
            yield Violation("settings", f"{setting} differs: {found}", tuple(of_setting[-2:]))


def _allowed(changes: Sequence[SettingChange]) -> list[str | None] | None:
    """The values that a setting may have after these changes; None: also that before all of them."""
    last = max((n for n, change in enumerate(changes) if change.outcome is Outcome.OK), default=None)
    if last is None:
        return None
    confirmed = changes[last]
    late = [
        change.value
        for number, change in enumerate(changes)
        if change.outcome is not Outcome.OK and (number > last or change.invoked_us + LATE_US >= confirmed.invoked_us)
    ]
    return [confirmed.value, *late]


def replicas_are_where_they_were_moved(history: History, final: FinalState) -> Iterator[Violation]:
    """directories"""
    for folder in final.future_folders:
        yield Violation("directories", f"{folder.partition} still moves on broker {folder.broker_id}")
    places = {(folder.broker_id, folder.partition): folder.directory for folder in final.folders}
    for (broker_id, partition), number in Counter((each.broker_id, each.partition) for each in final.folders).items():
        if number > 1:
            yield Violation("directories", f"broker {broker_id} has {number} folders of {partition}")
    given_up = {each.broker_id: each.invoked_us for each in history.of(Started)}
    for filled in history.of(DiskFilled):
        given_up[filled.broker_id] = max(given_up.get(filled.broker_id, -1), filled.invoked_us)
    last: dict[tuple[int, object], Move] = {}
    for move in history.of(Move):
        if move.outcome is not Outcome.FAILED:
            last[move.broker_id, move.partition] = move
    for move in last.values():
        place = places.get((move.broker_id, move.partition))
        is_certain = move.outcome is Outcome.OK and given_up.get(move.broker_id, -1) < move.invoked_us
        if is_certain and place is not None and place != move.directory:
            text = f"{move.partition} is in {place} on broker {move.broker_id}"
            yield Violation("directories", f"{text}, and was moved to {move.directory}", (move,))
