"""Regular expressions of consumer groups: RE2's syntax, matched against whole names of topics.

They are resolved beside the requests, all of a group's at once, so that a change leads to one rebalance. An expression
that is not resolved yet matches no topic.

A heartbeat asks for it if no run is under way, the last was more than 10 s ago, and one of these holds: an expression
is not resolved; there are new topics; the last run was longer ago than the refresh interval. A run whose result would
not fit in a batch of the log leaves expressions to the next one.

Source: Kafka's GroupMetadataManager (maybeUpdateRegularExpressions), TopicRegexResolver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from odradek.broker.background.stepwise import Pace, Steps
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.metadata_hash import REFRESH_INTERVAL_MS, hash_after
from odradek.broker.coordinator.group.consumer.outcome import Outcome
from odradek.broker.coordinator.group.consumer.records import group_epoch_record, regex_record
from odradek.broker.coordinator.group.consumer.subscriptions import ResolvedRegex
from odradek.broker.coordinator.group.consumer.topics import Topics
from odradek.broker.regular_expressions import MOST_BYTES, items_of, items_of_match, matches
from odradek.broker.regular_expressions import compiled as compile_regex
from odradek.protocol.errors import ProtocolError

LEAST_INTERVAL_MS = 10_000
"""Between two runs of a group."""
NAME_OVERHEAD = 2
"""The bytes of a name in a record, besides its characters."""
MEMORY_OF_RESOLUTION = 4 * MOST_BYTES
"""Of a run. An expression that is being compiled takes more than one that is compiled."""


def check_regex(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION if the expression does not compile."""
    compile_regex(regex)


def must_resolve(
    group: ConsumerGroup, regexes: Collection[str], topics: Topics, now_ms: int, refresh_interval_ms: int
) -> bool:
    """Whether a run must begin now. `regexes` are those of the group after the request that is being handled."""
    if not regexes or group.is_resolving:
        return False
    resolved = group.subscriptions.resolved
    last_ms = max((each.timestamp_ms for each in resolved.values()), default=None)
    if last_ms is None:
        return True
    if now_ms <= last_ms + LEAST_INTERVAL_MS:
        return False
    return (
        any(regex not in resolved for regex in regexes)
        or bool(group.left_regexes)
        or group.resolved_version != topics.version
        or now_ms > last_ms + refresh_interval_ms
    )


def next_regexes(group: ConsumerGroup, regexes: frozenset[str]) -> list[str]:
    """Returns the expressions of the next run, unresolved ones first: all, or what the last run has left."""
    resolved = group.subscriptions.resolved
    left = group.left_regexes & regexes
    wanted = left | (regexes - resolved.keys()) if left else regexes
    return sorted(wanted, key=lambda regex: (regex in resolved, regex))


def resolve_steps(
    regexes: Iterable[str], names: Collection[str], is_visible: Callable[[str], bool], most_bytes: int
) -> Steps[dict[str, frozenset[str]]]:
    """Returns the topics among `names` that each expression matches and that the client may describe.

    Expressions are missing once the names of all results take `most_bytes`; the first one is always there. One
    expression after the other: a compiled one may take MOST_BYTES. An expression in a log that RE2 does not compile
    matches none.
    """
    pace = Pace()
    visible: dict[str, bool] = {}
    matched: dict[str, frozenset[str]] = {}
    size = 0
    for regex in regexes:
        try:
            pattern = compile_regex(regex)
        except ProtocolError:
            matched[regex] = frozenset()
            continue
        if pace.step_ends(items_of(regex)):
            yield
        fitting = []
        for name in names:
            if matches(pattern, name):
                if name not in visible:
                    visible[name] = is_visible(name)
                if visible[name]:
                    fitting.append(name)
            if pace.step_ends(items_of_match(pattern, name)):
                yield
        size += sum(NAME_OVERHEAD + len(name) for name in fitting)
        if matched and size > most_bytes:
            break
        matched[regex] = frozenset(fitting)
    return matched


def resolved(
    group: ConsumerGroup, matched: Mapping[str, frozenset[str]], version: int, now_ms: int, topics: Topics
) -> Outcome:
    """Returns what the result of a run leads to. `version`: of the topics when it began; `now_ms`: since 1970.

    Expressions that nobody uses any more are left out. Whoever carries it out sets `is_resolving` and, if that
    succeeded, calls `has_resolved`.
    """
    known = group.subscriptions.resolved
    results = {
        regex: ResolvedRegex(found, version, now_ms)
        for regex, found in matched.items()
        if group.subscriptions.members_with(regex)
    }
    records = [regex_record(group.group_id, regex, result) for regex, result in results.items()]
    hashed = hash_after(group, topics, (), results)
    has_changed = hashed != group.metadata_hash or any(
        result.topics != (known[regex].topics if regex in known else frozenset()) for regex, result in results.items()
    )
    if not has_changed:
        return Outcome(records)
    records.append(group_epoch_record(group.group_id, group.next_epoch, hashed))
    return Outcome(records, assign=True, refresh_at_ms=now_ms + REFRESH_INTERVAL_MS)
