"""The invariants of LogState, by the letters of its docstring, and that no other code writes its fields."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.protocol.errors import ProtocolError
from odradek.storage.log_state import LogState
from tests.memory_files import ForgetfulFiles
from tests.storage.small_logs import append, open_small

ROOT = Path(__file__).resolve().parents[2]
OWNER = ROOT / "storage" / "log_state.py"


def opened(start: int = 10, high_watermark: int = 20, end: int = 30, recovery_point: int = 25) -> LogState:
    state = LogState()
    state.opened(start, end, recovery_point)
    state.replicated_to(high_watermark)
    return state


def offsets(state: LogState) -> tuple[int, int, int, int]:
    return state.log_start_offset, state.high_watermark, state.log_end_offset, state.recovery_point


def check(state: LogState) -> None:
    assert state.log_start_offset <= state.high_watermark <= state.log_end_offset, state  # (A)
    assert state.recovery_point <= state.log_end_offset, state  # (B)


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


def test_a_truncation_that_fails_halfway_also_begins_a_new_generation() -> None:
    state = opened()
    state.truncation_begun(15)
    assert state.generation == 1
    assert offsets(state) == (10, 20, 30, 15)


def test_an_announced_truncation_keeps_the_generation() -> None:
    state = opened()
    state.withdrawn_from(15)
    assert state.generation == 0
    assert offsets(state) == (10, 20, 30, 15)
    assert state.cleaned_offset is None


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


@pytest.mark.parametrize("seed", range(20))
def test_no_sequence_of_transitions_breaks_an_invariant(seed: int) -> None:
    source = random.Random(seed)
    state = opened()
    for _ in range(500):
        offset = source.randrange(max(0, state.log_start_offset - 20), state.log_end_offset + 20)
        before, generation = offsets(state), state.generation
        event = source.choice(["append", "replicate", "start", "flush", "withdraw", "truncate", "relocate", "clean"])
        if event == "append":
            state.appended(state.log_end_offset + source.randrange(1, 10))
        elif event == "replicate":
            state.replicated_to(offset)
        elif event == "start" and offset > state.log_start_offset:
            state.started_at(offset)
        elif event == "flush":
            state.flushed_to(offset)
            assert state.recovery_point >= before[3]
        elif event == "withdraw":
            state.withdrawn_from(offset)
        elif event == "truncate" and offset < state.log_end_offset:
            state.truncation_begun(offset)
            check(state)
            state.truncated_to(offset)
            assert state.log_end_offset == offset
            assert state.cleaned_offset is None or state.cleaned_offset <= offset  # (D)
        elif event == "relocate":
            state.relocated()
        elif event == "clean":
            state.cleaned_to(offset)
        check(state)
        assert state.generation - generation == (
            event == "relocate" or (event == "truncate" and offset < before[2])
        )  # (C)


def test_a_truncation_whose_sync_fails_moves_the_high_watermark_back(monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_small(ForgetfulFiles())
    for _ in range(10):
        append(log)

    def fail(path: str) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(log.files, "sync_directory", fail)
    with pytest.raises(ProtocolError):
        log.truncate_to(5)
    assert offsets(log.state) == (0, 5, 5, 0)


# ---- no other writers


def written(path: Path) -> Iterator[ast.Attribute]:
    """Returns the attributes that the file assigns to."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node


FIELDS = frozenset(node.attr for node in written(OWNER))


def written_fields(path: Path, *, is_storage: bool) -> list[int]:
    """Returns the lines where the file writes a field of a LogState, judging by names: in storage/, an assignment to a
    field of that name of any object but `self`.
    """
    fields = [(node, ast.unparse(node.value)) for node in written(path) if node.attr in FIELDS]
    return sorted(node.lineno for node, owner in fields if owner.endswith("state") or (is_storage and owner != "self"))


@pytest.mark.parametrize("room", ["storage", "broker", "benchmarks", "tests/storage", "tests/broker/replica"])
def test_the_fields_are_written_only_by_transitions(room: str) -> None:
    paths = [path for path in (ROOT / room).rglob("*.py") if path != OWNER]
    assert paths
    assert {str(path): lines for path in paths if (lines := written_fields(path, is_storage="storage" in room))} == {}


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
