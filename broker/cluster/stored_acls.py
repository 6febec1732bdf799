"""The ACLs in the metadata store: any broker changes them, every broker decides by them.

(A) Every broker has all ACLs in memory, in its authorizer: it reads them at the start, before it serves anybody. ACLs
    that cannot be parsed keep the broker from starting: a denial might be among them.
(B) The ACLs of one resource pattern are one entry. A change reads the entry, passes its ACLs through the caller's
    function, and writes the result if nothing else has changed the entry meanwhile; otherwise it starts over, at most
    MOST_TRIES times. The authorizer has the new ACLs before the change returns.
(C) Every broker follows the changes of all (store_follower.py), and reads the ACLs that a notice names. ACLs that
    cannot be parsed then are logged, and what was known before still holds.
(D) Patterns are read and written many at a time, in steps: there may be 100,000.

Source: Kafka's `AclAuthorizer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

import structlog

from odradek.broker.background.stepwise import Steps, in_steps, others_between
from odradek.broker.background.tasks import Spawn
from odradek.broker.cluster.deltas import AclsChanged, ApplyDelta
from odradek.broker.cluster.store_follower import StoreFollower
from odradek.broker.metadata_store import acl_znodes
from odradek.broker.metadata_store.acl_znodes import acl_change, acl_path, parse_acl_change, parse_acls
from odradek.broker.metadata_store.interface import (
    LONGEST_ENTRY,
    BadVersion,
    ConnectionLost,
    Create,
    Delete,
    Entry,
    EntryExists,
    MetadataStore,
    MetadataStoreError,
    NoEntry,
    Operation,
    Set,
    StoreDamaged,
    StoreUnavailable,
)
from odradek.broker.metadata_store.read_back import pipeline_or_read_back, retry_until_connected
from odradek.broker.metadata_store.start_up import make_entries
from odradek.broker.security.authorizer.acl import AccessControlEntry, ResourcePattern
from odradek.broker.security.authorizer.acl_authorizer import AclAuthorizer
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.wire_codes import AclPatternType
from odradek.timer import Clock

T = TypeVar("T")

Acls = frozenset[AccessControlEntry]
AclChange = Callable[[Acls], Acls]
"""Maps the ACLs of one pattern to the new ones."""

PATTERNS_AT_ONCE = 100
MANY_ACLS = 100
"""If one pattern has more, other tasks run before the next one."""
MOST_TRIES = 10
"""How often a change starts over; as in Kafka."""
COST = 3
"""The cost of reading or changing the ACLs of one pattern that has few, in items of a step."""
CONFLICTS = (BadVersion, EntryExists, NoEntry, ConnectionLost)
"""Another broker was faster, or the session has ended: the change starts over."""

log = structlog.get_logger("broker.acls")


class Altered(NamedTuple):
    """What became of the ACLs of one pattern. With an error, `after` was not written, and `before` may be out of
    date.
    """

    before: Acls
    after: Acls
    error: ProtocolError | None = None


class StoredAcls:
    """Keeps `authorizer` up to date: `apply` applies a delta to it. Call `load` after the store was opened."""

    def __init__(
        self, store: MetadataStore, authorizer: AclAuthorizer, apply: ApplyDelta, *, clock: Clock, spawn: Spawn
    ) -> None:
        self.authorizer = authorizer
        self._apply = apply
        self._store = store
        self._follower = StoreFollower(
            store,
            "ACLs",
            {path: partial(self._apply_notices, kind) for kind, path in acl_znodes.CHANGES.items()},
            read_everything=self._read_everything,
            at_once=PATTERNS_AT_ONCE,
            clock=clock,
            spawn=spawn,
            log=log,
        )

    # Reading

    async def load(self) -> None:
        """Reads all ACLs, in one session (A). Raises StoreDamaged, and StoreUnavailable if the store is closed."""
        await self._follower.load()
        log.info("ACLs loaded", resources=len(self.authorizer.acls))

    async def _read_everything(self) -> None:
        await make_entries(self._store, acl_znodes.PERSISTENT_PATHS)
        await self._follower.watch()
        known = self.authorizer.acls.keys()
        found = await self._stored_patterns()
        async for some in others_between(_chunks([*found, *(known - found.keys())]), PATTERNS_AT_ONCE):
            await self._read(some)

    async def _stored_patterns(self) -> dict[ResourcePattern, None]:
        found: dict[ResourcePattern, None] = {}
        for kind, root in acl_znodes.ROOTS.items():
            for name in await self._store.children(root):
                resource_type = acl_znodes.RESOURCE_TYPES.get(name)
                if resource_type is None:
                    log.warning("ACLs ignored", path=f"{root}/{name}", reason="the type of resource is not known")
                    continue
                async for each in others_between(await self._store.children(f"{root}/{name}")):
                    found[ResourcePattern(resource_type, kind, each)] = None
        return found

    async def _read(self, patterns: Sequence[ResourcePattern]) -> None:
        """Gives the authorizer the stored ACLs of some patterns."""
        entries = await self._store.entries([acl_path(pattern) for pattern in patterns])
        for pattern, entry in zip(patterns, entries, strict=True):
            try:
                acls = _parsed(pattern, entry)
            except StoreDamaged as error:
                if not self._follower.has_loaded:
                    raise
                log.error("stored ACLs ignored", reason=str(error))
            else:
                await self._apply(AclsChanged(pattern, acls))
                if len(acls) > MANY_ACLS:
                    await asyncio.sleep(0)

    # Changing

    async def alter(
        self, changes: Iterable[tuple[ResourcePattern, AclChange]]
    ) -> AsyncIterator[tuple[ResourcePattern, Altered]]:
        """Changes the ACLs of patterns, each once, whose names have no fault (B). The errors are POLICY_VIOLATION and
        KAFKA_STORAGE_ERROR.
        """
        for some in _chunks(changes):
            done: dict[ResourcePattern, Altered] = {}
            async with self._follower.applying:
                left = dict(some)
                for _ in range(MOST_TRIES):
                    left = await self._alter(left, done)
                    if not left:
                        break
                self._fail(left, done, "the ACLs are being changed by others, too")
            changed = [pattern for pattern, one in done.items() if one.error is None and one.before != one.after]
            if changed:
                log.info("ACLs changed", resources=[_shown(pattern) for pattern in changed])
            for item in done.items():
                yield item

    def _fail(
        self, changes: Mapping[ResourcePattern, AclChange], done: dict[ResourcePattern, Altered], reason: str
    ) -> None:
        for pattern, change in changes.items():
            before = self.authorizer.acls.get(pattern, frozenset())
            error = ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"{_shown(pattern)}: {reason}")
            done[pattern] = Altered(before, change(before), error)

    async def _alter(
        self, changes: dict[ResourcePattern, AclChange], done: dict[ResourcePattern, Altered]
    ) -> dict[ResourcePattern, AclChange]:
        """Puts into `done` what is complete, and returns the rest."""
        paths = [acl_path(pattern) for pattern in changes]
        try:
            entries = await retry_until_connected(self._store, lambda: self._store.entries(paths))
        except StoreUnavailable as error:
            self._fail(changes, done, str(error))
            return {}
        writes: dict[ResourcePattern, tuple[Altered, list[Operation]]] = {}
        async for (pattern, change), entry in others_between(zip(changes.items(), entries, strict=True), COST):
            altered, write = await in_steps(_planned(pattern, entry, change))
            if write is None:
                await self._complete(pattern, altered, done)
            else:
                writes[pattern] = altered, [write, *self._follower.notice(acl_change(pattern))]
            if len(altered.after) > MANY_ACLS:
                await asyncio.sleep(0)
        return {pattern: changes[pattern] for pattern in await self._write(writes, done)}

    async def _write(
        self, writes: Mapping[ResourcePattern, tuple[Altered, list[Operation]]], done: dict[ResourcePattern, Altered]
    ) -> list[ResourcePattern]:
        """Returns the patterns whose change must start over."""
        left = []
        outcomes = await pipeline_or_read_back(self._store, [operations for _, operations in writes.values()])
        for (pattern, (altered, _)), outcome in zip(writes.items(), outcomes, strict=True):
            if isinstance(outcome, CONFLICTS):
                left.append(pattern)
                continue
            if isinstance(outcome, MetadataStoreError):
                altered = altered._replace(error=ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(outcome)))
            else:
                self._follower.wrote(outcome)
            await self._complete(pattern, altered, done)
            if len(altered.after) > MANY_ACLS:
                await asyncio.sleep(0)
        return left

    async def _complete(self, pattern: ResourcePattern, altered: Altered, done: dict[ResourcePattern, Altered]) -> None:
        done[pattern] = altered
        if altered.error is None:
            await self._apply(AclsChanged(pattern, altered.after))

    # Following the changes of all brokers

    async def _apply_notices(self, kind: AclPatternType, paths: Sequence[str]) -> None:
        await self._read(await self._patterns_of(kind, paths))

    async def _patterns_of(self, kind: AclPatternType, paths: Sequence[str]) -> list[ResourcePattern]:
        """The patterns that some notices name, each once."""
        found: dict[ResourcePattern, None] = {}
        for path, entry in zip(paths, await self._store.entries(paths), strict=True):
            try:
                if entry is not None:
                    found[_checked(parse_acl_change(kind, path, entry.data), path)] = None
            except StoreDamaged as error:
                log.error("change of ACLs ignored", reason=str(error))
        return list(found)


def _planned(
    pattern: ResourcePattern, entry: Entry | None, change: AclChange
) -> Steps[tuple[Altered, Operation | None]]:
    """Returns the outcome if the write, which is the second, succeeds; None if there is nothing to write."""
    path = acl_path(pattern)
    try:
        before = _parsed(pattern, entry)
    except StoreDamaged as error:
        nothing: Acls = frozenset()
        return Altered(nothing, nothing, ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))), None
    if len(before) > MANY_ACLS:
        yield
    after = change(before)
    if max(len(before), len(after)) > MANY_ACLS:
        yield
    if after == before:
        return Altered(before, after), None
    if not after:
        assert entry is not None
        return Altered(before, after), Delete(path, entry.version)
    data = acl_znodes.encode_acls(after)
    if len(data) + len(path) > LONGEST_ENTRY:
        text = f"{_shown(pattern)}: its ACLs have {len(data)} bytes together; {LONGEST_ENTRY} are allowed"
        return Altered(before, after, ProtocolError(ErrorCode.POLICY_VIOLATION, text)), None
    return Altered(before, after), Create(path, data) if entry is None else Set(path, data, entry.version)


def _parsed(pattern: ResourcePattern, entry: Entry | None) -> Acls:
    return frozenset() if entry is None else parse_acls(acl_path(pattern), entry.data)


def _checked(pattern: ResourcePattern, path: str) -> ResourcePattern:
    """A notice names an entry that can be."""
    fault = acl_znodes.name_fault(pattern.name) if pattern.name else "is empty"
    if fault is not None or pattern.resource_type not in acl_znodes.RESOURCE_TYPES.values():
        raise StoreDamaged(path, f"names {_shown(pattern)}, which has no ACLs: {fault or 'the type is not known'}")
    return pattern


def _shown(pattern: ResourcePattern) -> str:
    return f"{pattern.resource_type.name}:{pattern.pattern_type.name}:{pattern.name[:100]}"


def _chunks(items: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, PATTERNS_AT_ONCE)):
        yield some
