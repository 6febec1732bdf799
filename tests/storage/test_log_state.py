"""The invariants of LogState, by the letters of its docstring, and that no other code writes its fields."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.errors import ProtocolError
from odradek.storage.log.log_state import LogState
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import append, open_small, truncate

ROOT = Path(__file__).resolve().parents[2]
OWNER = ROOT / "storage" / "log" / "log_state.py"


def opened(start: int = 10, high_watermark: int = 20, end: int = 30, recovery_point: int = 25) -> LogState:
    state = LogState()
    state.opened(start, end, recovery_point)
    state.replicated_to(high_watermark)
    return state


def offsets(state: LogState) -> tuple[int, int, int, int]:
    return state.log_start_offset, state.high_watermark, state.log_end_offset, state.recovery_point


def test_an_opened_log_has_its_high_watermark_at_its_start() -> None:
    state = LogState()
    state.opened(10, 30, 25)
    assert offsets(state) == (10, 10, 30, 25)


def test_a_recovery_point_beyond_the_log_end_is_set_to_the_log_end() -> None:
    assert offsets(opened(recovery_point=99)) == (10, 20, 30, 30)


def test_an_append_moves_only_the_log_end() -> None:
    state = opened()
    state.appended(33)
    assert offsets(state) == (10, 20, 33, 25)


@pytest.mark.parametrize(("asked", "found"), [(9, 10), (10, 10), (15, 15), (30, 30), (31, 30)])
def test_the_high_watermark_stays_within_the_log(asked: int, found: int) -> None:
    state = opened()
    assert state.replicated_to(asked) == found
    assert offsets(state) == (10, found, 30, 25)


@pytest.mark.parametrize(("asked", "found"), [(20, 25), (27, 27), (99, 30)])
def test_a_flush_advances_the_recovery_point_at_most_to_the_log_end(asked: int, found: int) -> None:
    state = opened()
    state.flushed_to(asked)
    assert offsets(state) == (10, 20, 30, found)


@pytest.mark.parametrize(
    ("asked", "found"), [(15, (15, 20, 30, 25)), (22, (22, 22, 30, 25)), (28, (28, 28, 30, 28)), (99, (30, 30, 30, 30))]
)
def test_a_new_start_also_moves_the_high_watermark_and_the_recovery_point(
    asked: int, found: tuple[int, int, int, int]
) -> None:
    state = opened()
    state.started_at(asked)
    assert offsets(state) == found


@pytest.mark.parametrize(
    ("asked", "found"), [(28, (10, 20, 28, 25)), (22, (10, 20, 22, 22)), (15, (10, 15, 15, 15)), (5, (5, 5, 5, 5))]
)
def test_a_truncation_moves_all_offsets_back(asked: int, found: tuple[int, int, int, int]) -> None:
    state = opened()
    state.cleaned_to(24)
    state.truncation_begun(asked)
    assert state.log_end_offset == 30
    assert state.recovery_point == found[3]
    state.truncated_to(asked)
    assert offsets(state) == found
    assert state.cleaned_offset == min(24, asked)


def test_a_truncation_that_has_begun_withdraws_what_will_be_removed() -> None:
    state = opened()
    state.truncation_begun(15)
    assert state.generation == 1
    assert offsets(state) == (10, 15, 30, 15)
    assert state.cleaned_offset is None


def test_until_a_truncation_ends_nothing_above_it_is_flushed_cleaned_or_deleted() -> None:
    state = opened(high_watermark=30)
    state.truncation_begun(15)
    state.flushed_to(30)
    state.cleaned_to(30)
    state.started_at(22)
    assert (state.recovery_point, state.cleaned_offset, state.log_start_offset) == (15, 15, 15)
    state.truncated_to(20)  # a part of the files
    state.flushed_to(20)
    assert (state.recovery_point, state.truncating_to) == (15, 15)
    state.truncated_to(15)
    assert state.truncating_to is None
    state.appended(20)
    state.flushed_to(20)
    assert state.recovery_point == 20


def test_a_truncation_that_was_given_up_lets_the_records_be_flushed_again() -> None:
    state = opened()
    state.truncation_begun(15)
    state.truncation_ended()
    state.flushed_to(30)
    assert offsets(state) == (10, 15, 30, 30)


@pytest.mark.parametrize("offset", [0, 20, 99])
def test_a_log_that_starts_over_is_empty_and_durable_at_its_new_start(offset: int) -> None:
    state = opened()
    state.cleaned_to(24)
    state.truncation_begun(min(10, offset))
    state.truncated_to(10)
    state.started_over(offset)
    assert offsets(state) == (offset, offset, offset, offset)
    assert (state.cleaned_offset, state.truncating_to, state.generation) == (offset, None, 3)


def test_a_move_begins_a_new_generation_and_keeps_the_offsets() -> None:
    state = opened()
    state.relocated()
    assert state.generation == 1
    assert offsets(state) == offsets(opened())


def test_being_cleaned_is_set_from_the_start_to_the_end_of_a_clean() -> None:
    state = opened()
    state.cleaning_begun()
    assert state.being_cleaned
    state.cleaned_to(18)
    state.cleaning_ended()
    assert (state.being_cleaned, state.cleaned_offset) == (False, 18)


EVENTS = ("append", "replicate", "start", "flush", "begin", "end", "truncate", "over", "relocate", "clean")
OF_A_NEW_GENERATION = ("begin", "truncate", "over", "relocate")


def happen(state: LogState, event: str, offset: int) -> None:
    if event == "append":
        state.appended(state.log_end_offset + 1 + offset % 10)
    elif event == "begin":
        state.truncation_begun(offset)
    elif event == "truncate":
        state.truncation_begun(offset)
        state.check()
        state.truncated_to(offset)
        assert state.log_end_offset == offset
        assert state.cleaned_offset is None or state.cleaned_offset <= offset  # (D)
    elif event in ("end", "relocate"):
        {"end": state.truncation_ended, "relocate": state.relocated}[event]()
    else:
        transitions = {
            "replicate": state.replicated_to,
            "start": state.started_at,
            "flush": state.flushed_to,
            "over": state.started_over,
            "clean": state.cleaned_to,
        }
        transitions[event](offset)


@pytest.mark.parametrize("seed", range(20))
def test_no_sequence_of_transitions_breaks_an_invariant(seed: int) -> None:
    source = random.Random(seed)
    state = opened()
    for _ in range(500):
        offset = source.randrange(max(0, state.log_start_offset - 20), state.log_end_offset + 20)
        event = source.choice(EVENTS)
        if event in ("begin", "truncate") and offset >= state.log_end_offset:
            continue
        before, generation = offsets(state), state.generation
        happen(state, event, offset)
        state.check()
        assert (state.generation > generation) == (event in OF_A_NEW_GENERATION)  # (C)
        if event == "flush":
            assert state.recovery_point >= before[3]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("log_start_offset", 21),
        ("high_watermark", 31),
        ("log_end_offset", 24),
        ("recovery_point", 31),
        ("closed", True),
        ("truncating_to", 24),
    ],
)
def test_a_broken_invariant_is_found(field: str, value: int) -> None:
    state = opened()
    state.check()
    setattr(state, field, value)
    with pytest.raises(AssertionError):
        state.check()


def test_a_truncation_whose_sync_fails_moves_the_high_watermark_back(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_small(ForgetfulFiles())
    for _ in range(10):
        append(log)

    def fail(path: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(log.files, "sync_directory", fail)
    with pytest.raises(ProtocolError):
        truncate(log, 5)
    assert offsets(log.state) == (0, 5, 5, 0)


# ---- no other writers


def written(path: Path) -> Iterator[ast.Attribute]:
    """Returns the attributes that the file assigns to."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node


FIELDS = frozenset(node.attr for node in written(OWNER))
ANY_FIELD = re.compile(rf"\.({'|'.join(FIELDS)})\b")
"""In the other files there is nothing to parse."""


def written_fields(path: Path, *, is_storage: bool) -> list[int]:
    """Returns the lines where the file writes a field of a LogState, judging by names: in storage/, an assignment to a
    field of that name of any object but `self`.
    """
    if not ANY_FIELD.search(path.read_text()):
        return []
    fields = [(node, ast.unparse(node.value)) for node in written(path) if node.attr in FIELDS]
    return sorted(node.lineno for node, owner in fields if owner.endswith("state") or (is_storage and owner != "self"))


@pytest.mark.parametrize("folder", ["storage", "broker", "benchmarks", "tests/storage", "tests/broker/replica"])
def test_the_fields_are_written_only_by_transitions(folder: str) -> None:
    paths = [path for path in (ROOT / folder).rglob("*.py") if path != OWNER]
    assert paths
    assert {str(path): lines for path in paths if (lines := written_fields(path, is_storage="storage" in folder))} == {}


def test_writes_from_other_code_are_detected(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere.py"
    path.write_text(
        "state.log_end_offset = 1\n"
        "self._state.recovery_point += 1\n"
        "a, log.state.generation = 1, 2\n"
        "x.high_watermark: int = 3\n"
        "self.generation = 4\n"
        "print(state.log_end_offset)\n"
    )
    assert written_fields(path, is_storage=True) == [1, 2, 3, 4]
    assert written_fields(path, is_storage=False) == [1, 2, 3]
