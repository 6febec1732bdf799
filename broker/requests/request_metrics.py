"""The counters of requests: plain ints, incremented on the hot path and read when metrics are scraped.

A dispatcher keeps the `RequestMetrics` of each API and version with its route and calls `answered` once per request.
The exporter (metrics/exposition.py) does all other arithmetic (quantiles, rates, sums over versions) at scrape time. It
reads further counters where other packages keep them: topics (replica/partition/topic_stats.py), timeouts and sizes of
the purgatories, connections (network/socket_server.py).

Times are differences of a clock with a resolution of one millisecond. A single difference may be off by up to one, but
the average is right, so `total_time_ms` is accurate however short the requests are. Kafka: RequestMetrics,
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
"""Times below this many ms have a bucket each; above, each doubling is divided into this many buckets."""
TIME_BUCKETS = FINE_TIMES * 28
ERROR_FIELDS = ("ErrorCode", "PartitionErrorCode")
"""The names of error code fields in responses."""

ErrorFinder = Callable[[Any, dict[int, int]], bool]
"""Counts the errors in a response; returns True if there is one."""


class RequestMetrics:
    """The counters of one API in one version. `errors` counts items by error code; a response without any error counts
    once as NONE.

    `times` are counts by `time_bucket`. A request without a response (acks=0) is counted when it has been handled.
    """

    __slots__ = (
        "_find_errors",
        "_find_errors_in_steps",
        "_response_class",
        "api",
        "errors",
        "requests",
        "times",
        "total_time_ms",
        "version",
    )

    def __init__(self, api: str, version: int, response: type[Message], find_errors: ErrorFinder) -> None:
        self.api = api
        self.version = version
        self.requests = 0
        self.total_time_ms = 0
        self.times = [0] * TIME_BUCKETS
        self.errors: dict[int, int] = {0: 0}
        self._response_class = response
        self._find_errors = find_errors
        self._find_errors_in_steps: Any = None

    def answered(self, response: Any, elapsed_ms: int) -> bool:
        """Counts a finished request that took `elapsed_ms`. `response` is None if there is none.

        Returns whether the response contains an error.
        """
        self._count(elapsed_ms)
        if response is None or not self._find_errors(response, self.errors):
            self.errors[0] += 1
            return False
        return True

    def answered_at_length(self, response: Any, elapsed_ms: int) -> Generator[None, None, bool]:
        """Like `answered`, but in steps, for long responses."""
        self._count(elapsed_ms)
        if self._find_errors_in_steps is None:
            self._find_errors_in_steps = error_finder(self._response_class, self.version, in_steps=True)
        found: bool = yield from self._find_errors_in_steps(response, self.errors)
        if not found:
            self.errors[0] += 1
        return found

    def _count(self, elapsed_ms: int) -> None:
        self.requests += 1
        self.total_time_ms += elapsed_ms
        self.times[elapsed_ms if 0 <= elapsed_ms < FINE_TIMES else time_bucket(elapsed_ms)] += 1


class BrokerMetrics:
    """All request counters of a broker, created when an API is first used."""

    __slots__ = ("requests",)

    def __init__(self) -> None:
        self.requests: dict[tuple[int, int], RequestMetrics] = {}

    def of(self, api_key: int, api_version: int) -> RequestMetrics:
        """Returns the counters of an API version. Raises KeyError or ValueError for an API unknown to the codec."""
        found = self.requests.get((api_key, api_version))
        if found is None:
            name = request_class(ApiKey(api_key)).__schema__.name.removesuffix("Request")
            response = response_class(ApiKey(api_key))
            found = RequestMetrics(name, api_version, response, error_finder(response, api_version))
            self.requests[(api_key, api_version)] = found
        return found


def time_bucket(elapsed_ms: int) -> int:
    """Returns the bucket of a time: exact below FINE_TIMES ms, within 6 % above."""
    if elapsed_ms < FINE_TIMES:
        return max(elapsed_ms, 0)
    shift = elapsed_ms.bit_length() - FINE_TIMES.bit_length()
    return min(FINE_TIMES * shift + (elapsed_ms >> shift), TIME_BUCKETS - 1)


def bucket_time_ms(bucket: int) -> int:
    """Returns the longest time that falls into the bucket."""
    if bucket < 2 * FINE_TIMES:
        return bucket
    shift = bucket // FINE_TIMES - 1
    return ((bucket - FINE_TIMES * shift + 1) << shift) - 1


def error_finder(response: type[Message], version: int, *, in_steps: bool = False) -> Any:
    """Returns an ErrorFinder: a function that visits every error code that a response has in this version, also in
    its arrays, and counts those that are not 0. With `in_steps` it is a generator that yields every ELEMENTS_PER_STEP
    items.

    The function is generated as straight loops, since it runs for every response.
    """
    lines = ["def find_errors(response, errors):", "    found = False"]
    if in_steps:
        lines += [f"    c = {ELEMENTS_PER_STEP}", "    if not c: yield"]
    _look_into(response, version, "response", 1, lines, in_steps)
    lines.append("    return found")
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)  # nosec B102 # of constants of this file
    return names["find_errors"]


def _look_into(structure: type[Message], version: int, name: str, depth: int, lines: list[str], in_steps: bool) -> bool:
    """Adds the lines that visit the structure called `name`. Returns False and adds none if it has no error code."""
    indentation = "    " * depth
    before = len(lines)
    for field in structure.__schema__.fields:
        value = f"{name}.{field.attribute}"
        if version not in field.versions:
            continue
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
            if not _look_into(field.struct_class, version, each, depth + 1, lines, in_steps):
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
    """Returns Kafka's name of an error code, or the number if it has no name."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
