"""The problems that a dump found, collected by kind and printed at its end."""

from typing import TextIO

Pairs = dict[str, list[tuple[int, int]]]


class DumpProblems:
    """Problems by kind and file; pairs are in the order in which Kafka's tool prints them."""

    def __init__(self) -> None:
        self.unreadable: list[str] = []
        self.damaged = False  # the dump itself has reported an invalid batch or tail
        self._mismatches: Pairs = {}
        self._timestamp_mismatches: Pairs = {}
        self._out_of_order: Pairs = {}
        self._not_found: Pairs = {}
        self._non_consecutive: Pairs = {}

    def mismatch(self, path: str, index_offset: int, log_offset: int) -> None:
        self._mismatches.setdefault(path, []).insert(0, (index_offset, log_offset))

    def timestamp_mismatch(self, path: str, index_timestamp: int, log_timestamp: int) -> None:
        self._timestamp_mismatches.setdefault(path, []).append((index_timestamp, log_timestamp))

    def out_of_order(self, path: str, timestamp: int, previous: int) -> None:
        self._out_of_order.setdefault(path, []).append((timestamp, previous))

    def not_found(self, path: str, index_offset: int, log_offset: int) -> None:
        self._not_found.setdefault(path, []).append((index_offset, log_offset))

    def non_consecutive(self, path: str, before: int, after: int) -> None:
        self._non_consecutive.setdefault(path, []).insert(0, (before, after))

    @property
    def none(self) -> bool:
        """Whether there are no problems. Gaps between offsets are none: compaction leaves them."""
        faults = (self._mismatches, self._timestamp_mismatches, self._out_of_order, self._not_found, self.unreadable)
        return not self.damaged and not any(faults)

    def write(self, errors: TextIO) -> None:
        _print(errors, self._mismatches, "Mismatches in :{}", "  Index offset: {}, log offset: {}")
        _print(
            errors,
            self._timestamp_mismatches,
            "Found timestamp mismatch in :{}",
            "  Index timestamp: {}, log timestamp: {}",
        )
        _print(
            errors,
            self._out_of_order,
            "Found out of order timestamp in :{}",
            "  Index timestamp: {}, Previously indexed timestamp: {}",
        )
        _print(
            errors,
            self._not_found,
            "The following indexed offsets are not found in the log.",
            "Indexed offset: {}, found log offset: {}",
        )
        _print(errors, self._non_consecutive, "Non-consecutive offsets in {}", "  {} is followed by {}")
        for line in self.unreadable:
            print(line, file=errors)


def _print(errors: TextIO, pairs_by_file: Pairs, head: str, line: str) -> None:
    for path, pairs in pairs_by_file.items():
        print(head.format(path), file=errors)
        for first, second in pairs:
            print(line.format(first, second), file=errors)
