"""A rate per second, measured over the last windows, as the quotas of Kafka measure it.

(A) Amounts are summed in samples. A sample ends with the first amount that comes at least one window after its
    beginning, and that amount begins the next one. There is room for one sample more than there are windows.
(B) A sample counts while its last amount is less than `windows` windows old; then it is empty, and begins anew. The
    samples that count therefore cover up to one window more.
(C) The rate is their sum over the time since the oldest of them began, but over at least one window: the first amount
    is not an infinite rate.

Source: Kafka's SampledStat and SimpleRate.
"""

from __future__ import annotations


class _Sample:
    __slots__ = ("amount", "begun_ms", "last_ms")

    def __init__(self, now_ms: int) -> None:
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        self.amount = 0
        self.begun_ms = now_ms
        self.last_ms = now_ms


class SampledRate:
    """Times are monotonic milliseconds, and never go back."""

    def __init__(self, windows: int, window_ms: int) -> None:
        self.windows = windows
        self.window_ms = window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, amount: int, now_ms: int) -> None:
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        elif now_ms - self._samples[self._current].begun_ms >= self.window_ms:
            self._begin_next(now_ms)
        sample = self._samples[self._current]
        sample.amount += amount
        sample.last_ms = now_ms

    def _begin_next(self, now_ms: int) -> None:
        self._current = (self._current + 1) % (self.windows + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].begin(now_ms)

    def measured(self, now_ms: int) -> tuple[int, int]:
        """Returns the sum of what counts (B), and the milliseconds that it is divided by (C)."""
        amount, begun_ms = 0, now_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= self.windows * self.window_ms:
                sample.begin(now_ms)
            amount += sample.amount
            begun_ms = min(begun_ms, sample.begun_ms)
        return amount, max(now_ms - begun_ms, self.window_ms)

    def per_second(self, now_ms: int) -> float:
        amount, elapsed_ms = self.measured(now_ms)
        return amount * 1000 / elapsed_ms
