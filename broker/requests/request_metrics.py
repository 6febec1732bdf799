"""The counters that requests leave behind: plain ints, bumped on the hot path, read when somebody asks for metrics.

A dispatcher keeps the `RequestMetrics` of each API and version beside its route and calls `answered` once per
request. All arithmetic that can wait (quantiles, rates, sums over versions) is done by the exporter
(metrics/exposition.py) at scrape time. What other rooms count themselves the exporter reads there: topics
(replica/topic_stats.py), time-outs and sizes of the purgatories, connections (network/socket_server.py).

Times are differences of a clock that shows whole milliseconds. A difference of two rounded readings is off by up to
one, but right on the average, so `total_time_ms` is right however short the requests are. Kafka: RequestMetrics,
RequestChannel.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.registry import request_class, response_class
from odradek.protocol.schema import Message
from odradek.protocol.source_lines import ELEMENTS_PER_STEP

FINE_TIMES = 16
"""Times below this many ms have a bucket each; above, every doubling has this many."""
TIME_BUCKETS = FINE_TIMES * 28
ERROR_FIELDS = ("ErrorCode", "PartitionErrorCode")
"""What error codes are called in responses."""

ErrorFinder = Callable[[Any, dict[int, int]], bool]
"""Counts the errors in a response; True if there was one."""


class RequestMetrics:
    """One API in one version. `errors` counts items by error code, whole answers without any error as NONE.

    `times` are counts by `time_bucket`. A request that is never answered (acks=0) counts when it ends.
    """

    __slots__ = ("_find_errors", "_response_class", "api", "errors", "requests", "times", "total_time_ms", "version")

    def __init__(self, api: str, version: int, response: type[Message], find_errors: ErrorFinder) -> None:
        self.api = api
        self.version = version
        self.requests = 0
        self.total_time_ms = 0
        self.times = [0] * TIME_BUCKETS
        self.errors: dict[int, int] = {0: 0}
        self._response_class = response
        self._find_errors = find_errors

    def answered(self, response: Any, elapsed_ms: int) -> bool:
        """A request has come to its end, after `elapsed_ms`, with this response (None: without an answer).

        Returns whether there is an error in it.
        """
        self._count(elapsed_ms)
        if response is None or not self._find_errors(response, self.errors):
            self.errors[0] += 1
            return False
        return True

    def answered_at_length(self, response: Any, elapsed_ms: int) -> Generator[None, None, bool]:
        """The same in steps, for long answers."""
        self._count(elapsed_ms)
        finding = error_finder(self._response_class, in_steps=True)(response, self.errors)
        found: bool = yield from finding
        if not found:
            self.errors[0] += 1
        return found

    def _count(self, elapsed_ms: int) -> None:
        self.requests += 1
        self.total_time_ms += elapsed_ms
        self.times[elapsed_ms if 0 <= elapsed_ms < FINE_TIMES else time_bucket(elapsed_ms)] += 1


class BrokerMetrics:
    """All request counters of a broker, made as APIs are first used."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests: dict[tuple[int, int], RequestMetrics] = {}

    def of(self, api_key: int, api_version: int) -> RequestMetrics:
        """The counters of an API's version. Raises KeyError or ValueError for an API that the codec does not know."""
        found = self.requests.get((api_key, api_version))
        if found is None:
            name = request_class(ApiKey(api_key)).__schema__.name.removesuffix("Request")
            response = response_class(ApiKey(api_key))
            found = RequestMetrics(name, api_version, response, error_finder(response))
            self.requests[(api_key, api_version)] = found
        return found


def time_bucket(elapsed_ms: int) -> int:
    """The bucket of a time: exact below FINE_TIMES ms, within 6 % above."""
    if elapsed_ms < FINE_TIMES:
        return max(elapsed_ms, 0)
    shift = elapsed_ms.bit_length() - FINE_TIMES.bit_length()
    return min(FINE_TIMES * shift + (elapsed_ms >> shift), TIME_BUCKETS - 1)


def bucket_time_ms(bucket: int) -> int:
    """The longest time that falls into the bucket."""
    if bucket < 2 * FINE_TIMES:
        return bucket
    shift = bucket // FINE_TIMES - 1
    return ((bucket - FINE_TIMES * shift + 1) << shift) - 1


def error_finder(response: type[Message], *, in_steps: bool = False) -> Any:
    """An ErrorFinder: a function that looks into every error code of a response, through its arrays, and counts those
    that are not 0. `in_steps` it is a generator, which yields every ELEMENTS_PER_STEP items.

    It is made of straight loops, since it runs for every answer.
    """
    lines = ["def find_errors(response, errors):", "    found = False"]
    if in_steps:
        lines += [f"    c = {ELEMENTS_PER_STEP}", "    if not c: yield"]
    _look_into(response, "response", 1, lines, in_steps)
    lines.append("    return found")
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    return names["find_errors"]


def _look_into(structure: type[Message], name: str, depth: int, lines: list[str], in_steps: bool) -> bool:
    """Add the lines that look into the structure called `name`; False, and no line, if it has no error code."""
    indentation = "    " * depth
    before = len(lines)
    for field in structure.__schema__.fields:
        value = f"{name}.{field.attribute}"
        if field.name in ERROR_FIELDS:
            lines += [
                f"{indentation}if {value}:",
                f"{indentation}    errors[{value}] = errors.get({value}, 0) + 1",
                f"{indentation}    found = True",
            ]
        elif field.struct_class is not None:
            each = f"item{depth}"
            many = field.type == "array"
            lines.append(f"{indentation}for {each} in {value if many else f'({value},)'} or ():")
            if not many:
                lines.append(f"{indentation}    if {each} is None: continue")
            if not _look_into(field.struct_class, each, depth + 1, lines, in_steps):
                del lines[-1 if many else -2 :]
            elif in_steps:
                lines += [
                    f"{indentation}    c -= 1",
                    f"{indentation}    if c < 0:",
                    f"{indentation}        c = {ELEMENTS_PER_STEP}",
                    f"{indentation}        yield",
                ]
    return len(lines) > before


def error_name(code: int) -> str:
    """Kafka's name of an error code, the number where it has none."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
