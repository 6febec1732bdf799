"""The contestants of a comparison, their order, and how a checkout runs its modules."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks import __main__ as program
from benchmarks.checkout import THIS, Checkout, NotSetUp
from benchmarks.contestants import Odradek, kinds, taking_part
from benchmarks.processes import cpu_seconds, is_running
from benchmarks.wire import metadata

BARE = Checkout(Path("/somewhere"), "/somewhere/.venv/bin/python")


def names(only: str | None) -> list[str]:
    return [kind.name for kind in taking_part(None, only)[0]]


@pytest.fixture(autouse=True)
def _kafka_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_CONTROL", "control")


def test_an_older_checkout_takes_part_only_if_it_is_given() -> None:
    assert [kind.name for kind in kinds()] == ["odradek", "kafka"]
    assert [kind.name for kind in kinds(BARE)] == ["odradek", "before", "kafka"]


def test_each_round_begins_with_a_different_contestant() -> None:
    rounds = [[kind.name for kind in program.turns(kinds(BARE), number)] for number in range(3)]
    assert [turn[0] for turn in rounds] == ["odradek", "before", "kafka"]
    assert all(sorted(turn) == sorted(rounds[0]) for turn in rounds)
    assert [kind.name for kind in program.turns(kinds(), 1)] == ["kafka", "odradek"]


def test_a_subset_of_the_contestants_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(None) == ["odradek", "kafka"]
    assert names("kafka") == ["kafka"]
    assert names("kafka,odradek") == ["odradek", "kafka"]
    with pytest.raises(ValueError, match="before needs --before"):
        names("odradek,before")
    monkeypatch.delenv("KAFKA_CONTROL")
    assert names(None) == ["odradek"]
    with pytest.raises(ValueError, match="no broker to measure"):
        names("kafka")


def test_a_directory_that_is_not_set_up_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotSetUp, match="run `make setup` there"):
        Checkout.at(tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    with pytest.raises(NotSetUp, match="is not compiled"):
        Checkout.at(tmp_path)


def test_a_checkout_older_than_the_package_has_top_level_module_names() -> None:
    assert BARE.command(BARE.module("broker"), "--port", "1")[-4:] == ["-m", "broker", "--port", "1"]
    assert THIS.module("broker") == "odradek.broker"


def test_a_broker_can_be_killed_and_started_again(tmp_path: Path) -> None:
    broker = Odradek(tmp_path)
    broker.open_files = 500
    try:
        broker.start()
        first = broker.pid
        assert "500" in Path(f"/proc/{first}/limits").read_text()
        assert cpu_seconds(first) > 0
        broker.kill()
        assert not is_running(first)
        assert broker.start() > 0
        assert broker.pid != first
    finally:
        broker.remove()
    assert not is_running(broker.pid)
    assert not list(tmp_path.iterdir())


def test_a_broker_that_cannot_start_fails_at_once(tmp_path: Path) -> None:
    broker = Odradek(tmp_path)
    broker.options = ("--set", "authorizer.class.name=org.example.Authorizer")
    with pytest.raises(RuntimeError, match=r"authorizer\.class\.name"):
        broker.start()
    broker.remove()


def test_a_broker_whose_process_is_not_found_is_cleaned_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(_port: int) -> int:
        raise ProcessLookupError

    broker = Odradek(tmp_path)
    broker.tracer = ("sh", "-c", '"$@" & wait', "sh")
    monkeypatch.setattr("benchmarks.contestants.listener_of", not_found)
    with pytest.raises(ProcessLookupError):
        broker.start()
    broker.remove()
    assert refuses_soon(broker.port)


def refuses_soon(port: int) -> bool:
    """A process that ends and is not this process's child still resets connections for a moment."""
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up:
        with contextlib.suppress(ConnectionResetError):
            try:
                metadata(port)
            except ConnectionRefusedError:
                return True
    return False


def test_only_a_running_process_is_reported_as_running() -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
        assert not is_running(ended.pid)
