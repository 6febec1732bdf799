"""Large and repetitive requests of every API: no turn of the loop is long, and memory stays in proportion to the bytes.

By default each API has a few cases of small frames. With ODRADEK_SOAK=1 it has all of them in several sizes, and the
worst of each measure are printed at the end. ODRADEK_SWEEP_SEED draws other cases and mixtures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
import structlog

from odradek.broker.handlers.api_row import ApiRow
from odradek.broker.handlers.api_table import api_table
from odradek.testing import BrokerThread
from tests.base_requests import Known
from tests.large_requests import LargeRequest, large_requests
from tests.scenarios.known_world import SETTINGS, KnownWorld
from tests.scenarios.sweep import Bounds, Measured, Sweep, collected_as_in_production, worst
from tests.scenarios.turns_of_a_loop import MOST_CALLS, PROMISED_MS
from tests.soak import SOAK, rounds

SEED = int(os.environ.get("ODRADEK_SWEEP_SEED", "15"))
QUICK_SIZES = (20_000, 80_000)
"""Sizes, with a case of each; frames above 64 KB are handled in steps."""
SOAK_SIZES = (64 << 10, 1 << 20)
LARGEST_BYTES, LARGEST_CASES = 10 << 20, 3
ATTEMPTS = rounds(1, in_soak=3)
"""A turn that takes too long is measured again: on a busy machine it may be so by chance."""
BOUNDS = Bounds()
LONGEST_ERROR = 300
SIZE_OF_HARM = 30_000
ROWS = {row.key.api_name: row for row in api_table().client_rows()}


class Swept:
    """One broker for all APIs, and its measurements."""

    def __init__(self, thread: BrokerThread, world: KnownWorld, errors: list[str]) -> None:
        self._sweep = Sweep(thread)
        self._broker = thread.broker
        self._world = world
        self._errors = errors
        self.measured: list[Measured] = []

    def cases(self, row: ApiRow, version: int, size: int) -> list[str]:
        return [case.name for case in self._large(row, version, size)]

    def excess(self, row: ApiRow, version: int, size: int, name: str) -> list[str]:
        """Measures one case; returns the exceeded bounds."""
        found: list[str] = []
        for _ in range(ATTEMPTS):
            case = next(case for case in self._large(row, version, size) if case.name == name)
            self._errors.clear()
            measured = self._sweep.measure(case)
            found = measured.excess(BOUNDS) + self._errors[:1]
            if measured.turns.are_short():
                break
        self.measured.append(measured)
        return [f"{measured.name}, {measured.frame_bytes} bytes: {text}" for text in found]

    @contextmanager
    def harmed(self, harm: Callable[[], object]) -> Iterator[None]:
        """Makes ListGroups do harm first."""
        coordinator: Any = self._broker.coordinators.groups
        list_groups = coordinator.list_groups
        coordinator.list_groups = lambda *filters: (harm(), list_groups(*filters))[1]
        try:
            yield
        finally:
            del coordinator.list_groups

    def _large(self, row: ApiRow, version: int, size: int) -> Iterator[LargeRequest]:
        return large_requests(int(row.key), version, size, Random(SEED), self._world.restore())


@pytest.fixture(scope="module")
def swept(request: pytest.FixtureRequest) -> Iterator[Swept]:
    say = printer_of(request)
    say(f"large requests: {len(ROWS)} APIs, {plan()}")
    with errors_logged() as errors, BrokerThread(SETTINGS) as thread, collected_as_in_production():
        known = Known(broker_id=thread.broker.broker_id, log_dir=str(thread.data_dir))
        world = KnownWorld(thread.bootstrap, known)
        swept = Swept(thread, world, errors)
        yield swept
        world.close()
    if SOAK:
        say(f"{len(swept.measured)} requests in {sum(case.seconds for case in swept.measured):.0f} s")
        say(worst(swept.measured))


@contextmanager
def errors_logged() -> Iterator[list[str]]:
    """The events that are logged as errors; other events are not formatted."""
    errors: list[str] = []

    def note(_logger: object, method: str, event: Any) -> Any:
        if method in ("error", "critical", "exception"):
            errors.append(f"logged: {event['event']}: {event.get('exc_info') or event.get('error')!r}"[:LONGEST_ERROR])
        raise structlog.DropEvent

    structlog.configure(processors=[note])
    try:
        yield errors
    finally:
        structlog.reset_defaults()


def printer_of(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Prints past pytest's capture."""
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")

    def say(text: str) -> None:
        if SOAK and reporter is not None:
            for line in text.splitlines():
                reporter.write_line(line)

    return say


def plan() -> str:
    if not SOAK:
        return f"a case of {QUICK_SIZES} bytes each"
    return f"all cases of {SOAK_SIZES} bytes, {LARGEST_CASES} of {LARGEST_BYTES}, in two versions each"


def chosen(swept: Swept, row: ApiRow) -> Iterator[tuple[int, int, str]]:
    """Version, size and name of the cases to run."""
    source = Random(f"{SEED} {row.key}")
    if not SOAK:
        version = row.served.highest
        for size in QUICK_SIZES:
            yield version, size, source.choice(swept.cases(row, version, size))
        return
    for version in sorted({row.served.highest, newest_inflexible(row)}):
        for size in SOAK_SIZES:
            yield from ((version, size, name) for name in swept.cases(row, version, size))
        names = swept.cases(row, version, LARGEST_BYTES)
        yield from ((version, LARGEST_BYTES, name) for name in source.sample(names, min(LARGEST_CASES, len(names))))


def newest_inflexible(row: ApiRow) -> int:
    """The newest served version with fixed lengths, or the oldest version if there is none."""
    flexible = row.request_class.__schema__.flexible
    plain = [version for version in range(row.served.lowest, row.served.highest + 1) if version not in flexible]
    return max(plain, default=row.served.lowest)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("api", ROWS)
def test_a_large_request_keeps_turns_short_and_memory_in_proportion(swept: Swept, api: str) -> None:
    found: list[str] = []
    for version, size, name in chosen(swept, ROWS[api]):
        found += swept.excess(ROWS[api], version, size, name)
    assert not found, "\n" + "\n".join(found)


async def test_the_sweep_detects_a_handler_that_blocks_the_loop_or_takes_memory(swept: Swept) -> None:
    """Runs the same case before, with and after the harm."""
    row = ROWS["ListGroups"]
    (case, *_) = swept.cases(row, 4, SIZE_OF_HARM)
    harms: dict[str, Callable[[], object]] = {"a turn of": burn_processor_time, "MB for": allocate}
    for sentence, harm in harms.items():
        assert swept.excess(row, 4, SIZE_OF_HARM, case) == []
        with swept.harmed(harm):
            (found,) = swept.excess(row, 4, SIZE_OF_HARM, case)
        assert sentence in found
        assert f"ListGroups v4: {case}" in found
    with swept.harmed(fail):
        assert "request failed" in swept.excess(row, 4, SIZE_OF_HARM, case)[0]


def burn_processor_time() -> None:
    until = time.thread_time() + 1.2 * PROMISED_MS / 1000
    for _ in range(MOST_CALLS):
        time.thread_time()
    while SOAK and time.thread_time() < until:
        pass


def allocate() -> None:
    bytearray(BOUNDS.free_bytes + int(BOUNDS.bytes_per_byte + 2) * SIZE_OF_HARM)


def fail() -> None:
    raise RuntimeError("planted")
