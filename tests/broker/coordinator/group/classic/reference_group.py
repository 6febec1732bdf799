"""A classic group in as few lines as possible: each rule once, deadlines as numbers, no waiting and no callbacks.

`answers` holds the response to each request by the request's number; other requests wait. Ids of members are
numbers in the order of their creation. `tie` is set where two events of different kinds are due in the same
millisecond: their order is unspecified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

NEW_MS = 300_000
OK, COORD_NA, NOT_COORD = "NONE", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR"
GENERATION, UNKNOWN, REBALANCE = "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"
PROTOCOL, FENCED, REQUIRED = "INCONSISTENT_GROUP_PROTOCOL", "FENCED_INSTANCE_ID", "MEMBER_ID_REQUIRED"
FULL, NON_EMPTY, NOT_FOUND = "GROUP_MAX_SIZE_REACHED", "NON_EMPTY_GROUP", "GROUP_ID_NOT_FOUND"


class JoinRequest(NamedTuple):
    """The fields of a JoinGroup. Protocols: ((name, metadata), ...)."""

    instance: str | None
    protocols: tuple[tuple[str, bytes], ...]
    session_ms: int
    rebalance_ms: int
    known_ids: bool
    can_skip: bool


class ReferenceMember:
    def __init__(self, request: JoinRequest) -> None:
        self.request, self.assignment = request, b""
        self.join: int | None = None
        self.sync: int | None = None
        self.due: int | None = None
        self.is_new = True


class ReferenceGroup:
    def __init__(self, delay_ms: int, max_size: int) -> None:
        self.delay_ms, self.max_size = delay_ms, max_size
        self.now, self.ids, self.tie, self.fails = 0, 0, False, False
        self.answers: dict[int, Any] = {}
        self.saved: tuple[int, str | None, int | None, dict[int, ReferenceMember]] | None = None
        self.clear()

    def clear(self) -> None:
        self.exists, self.state, self.generation = False, "Empty", 0
        self.protocol: str | None = None
        self.leader: int | None = None
        self.members: dict[int, ReferenceMember] = {}
        self.pending: dict[int, int] = {}
        self.unsynced: set[int] = set()
        self.join_due: int | None = None
        self.sync_due: int | None = None
        self.initial_left: int | None = None
        self.added = False

    # --- requests: each returns or notes its answer -----------------------------------------------------------------

    def join(self, number: int, who: int | None, request: JoinRequest) -> None:
        member = self.members.get(who) if who is not None else None
        if who is not None and not self.exists:
            self.answer(number, UNKNOWN, who)
            return
        joined = sum(each.join is not None for each in self.members.values())
        if self.state == "PreparingRebalance":
            is_accepted = (member is not None and member.join is not None) or joined < self.max_size
        else:
            is_accepted = self.state == "Empty" or member is not None or len(self.members) < self.max_size
        if not is_accepted:
            if member is not None and who is not None:
                self.drop(who)
            self.pending.pop(who, None) if who is not None else None
            self.answer(number, FULL, None)
            return
        if not self.fits(request):
            self.answer(number, PROTOCOL, who)
            return
        if who is None:
            self.exists = True
            self.join_new(number, request)
            return
        if who in self.pending and request.instance is None:
            del self.pending[who]
            self.add(number, who, request)
            return
        error = self.check(who, request.instance)
        if error or member is None:
            self.answer(number, error or UNKNOWN, who)
            return
        same = member.request.protocols == request.protocols
        if (self.state == "CompletingRebalance" and same) or (self.state == "Stable" and same and who != self.leader):
            self.answer_generation(number, who)
            return
        self.answer_join(member, REBALANCE, who)
        member.request, member.join = request._replace(instance=member.request.instance), number
        self.prepare_if_possible()

    def join_new(self, number: int, request: JoinRequest) -> None:
        self.ids += 1
        who = self.ids
        old = self.of_instance(request.instance)
        if old is not None:
            self.replace(number, old, who, request)
            return
        if request.known_ids and request.instance is None:
            self.pending[who] = self.now + request.session_ms
            self.answer(number, REQUIRED, who)
            return
        self.add(number, who, request)
        return

    def add(self, number: int, who: int, request: JoinRequest) -> None:
        member = self.members[who] = ReferenceMember(request)
        member.join, member.due = number, self.now + NEW_MS
        if self.leader is None:
            self.leader = who
        self.added |= self.state == "PreparingRebalance" and self.generation == 0
        self.prepare_if_possible()

    def replace(self, number: int, old: int, who: int, request: JoinRequest) -> None:
        member, old_leader = self.members.pop(old), self.leader
        self.answer_join(member, FENCED, old)
        self.answer_sync(member, FENCED)
        self.members[who] = member
        self.unsynced = {who if each == old else each for each in self.unsynced}
        self.leader = who if self.leader == old else self.leader
        old_request, member.request = member.request, request
        member.due, member.join = self.now + (NEW_MS if member.is_new else request.session_ms), number
        if self.state == "CompletingRebalance" or (self.state == "Stable" and self.vote() != self.protocol):
            self.prepare()
            return
        if self.state == "Stable" and self.save():
            member.join = None
            leads = self.leader == who
            leader = self.leader if request.can_skip else old_leader
            skips = request.can_skip and leads
            members = self.subscriptions() if skips else ()
            self.answers[number] = (OK, self.generation, self.protocol, leader, who, members, skips)
        elif self.state == "Stable":
            member.join, member.request = None, old_request
            self.members[old] = self.members.pop(who)
            self.unsynced = {old if each == who else each for each in self.unsynced}
            self.leader = old if self.leader == who else self.leader
            member.due = self.now + old_request.session_ms
            self.answer(number, COORD_NA, None)

    def sync(self, number: int, who: int, instance: str | None, generation: int, given: Mapping[int, bytes]) -> None:
        error = self.check(who, instance)
        if not error and generation != self.generation:
            error = GENERATION
        if not error and self.state == "PreparingRebalance":
            error = REBALANCE
        if error:
            self.answers[number] = (error, b"")
            return
        member = self.members[who]
        self.synced(who)
        if self.state == "Stable":
            member.due = self.now + member.request.session_ms
            self.answers[number] = (OK, member.assignment)
            return
        self.answer_sync(member, REBALANCE)
        member.sync = number
        if who == self.leader:
            self.assign(given)

    def heartbeat(self, who: int, instance: str | None, generation: int) -> str:
        error = self.check(who, instance)
        if error or generation != self.generation:
            return error or GENERATION
        self.members[who].due = self.now + self.members[who].request.session_ms
        return REBALANCE if self.state == "PreparingRebalance" else OK

    def leave(self, who: int | None, instance: str | None) -> str:
        if who in self.pending:
            del self.pending[who]
            return OK
        if who is None:
            who, instance = self.of_instance(instance), None
        error = UNKNOWN if who is None else self.check(who, instance)
        if not error and who is not None:
            self.remove(who)
        return error or OK

    def delete(self) -> str:
        if not self.exists:
            return NOT_FOUND
        if self.state != "Empty":
            return NON_EMPTY
        if self.fails and self.generation > 0:
            return COORD_NA
        if self.generation > 0:
            self.saved = None
        elif self.pending:
            return OK  # the group was never written, and a member is about to join
        self.clear()
        return OK

    def restart(self) -> None:
        for who, member in self.members.items():
            self.answer_join(member, NOT_COORD, who)
            self.answer_sync(member, NOT_COORD)
        self.clear()
        if self.saved is not None:
            self.exists = True
            self.generation, self.protocol, self.leader, self.members = deepcopy(self.saved)
            self.state = "Stable" if self.members else "Empty"
            for member in self.members.values():
                member.due = self.now + member.request.session_ms

    # --- time -------------------------------------------------------------------------------------------------------

    def advance(self, ms: int) -> None:
        end = self.now + ms
        while not self.tie:
            self.settle()
            due = [(self.join_due, "join", 0), (self.sync_due, "sync", 0)]
            due += [(member.due, "session", who) for who, member in self.members.items()]
            due += [(at, "session", who) for who, at in self.pending.items()]
            coming = sorted((at, kind, who) for at, kind, who in due if at is not None and at <= end)
            if not coming:
                break
            at, kind, who = coming[0]
            self.tie = self.is_tie([each for each in coming if each[0] == at])
            self.now = at
            {"join": self.join_over, "sync": self.sync_over, "session": self.session_over}[kind](who)
        self.now = end
        self.settle()

    def is_tie(self, due: list[tuple[int, str, int]]) -> bool:
        """Sessions of members that were in a generation may expire in any order."""
        first = [who for _, _, who in due if who in self.pending or (who in self.members and self.members[who].is_new)]
        return len({kind for _, kind, _ in due}) > 1 or (len(due) > 1 and bool(first))

    def join_over(self, _who: int) -> None:
        if self.initial_left and self.added:
            self.added = False
            self.join_due = self.now + min(self.delay_ms, self.initial_left)
            self.initial_left = max(self.initial_left - self.delay_ms, 0)
        else:
            self.complete()

    def sync_over(self, _who: int) -> None:
        for who in sorted(self.unsynced):
            self.drop(who)
        self.prepare()

    def session_over(self, who: int) -> None:
        if who in self.pending:
            del self.pending[who]
            return
        member = self.members[who]
        if not member.is_new and (member.join is not None or member.sync is not None):
            member.due = None
        else:
            self.remove(who)

    # --- rebalances -------------------------------------------------------------------------------------------------

    def prepare_if_possible(self) -> None:
        if self.state != "PreparingRebalance":
            self.prepare()

    def prepare(self) -> None:
        if self.state == "CompletingRebalance":
            self.refuse_syncs(REBALANCE)
        self.unsynced, self.sync_due, self.added = set(), None, False
        longest = max((each.request.rebalance_ms for each in self.members.values()), default=0)
        if self.state == "Empty":
            self.join_due, self.initial_left = self.now + self.delay_ms, max(longest - self.delay_ms, 0)
        else:
            self.join_due, self.initial_left = self.now + longest, None
        self.state = "PreparingRebalance"

    def settle(self) -> None:
        waits = self.state != "PreparingRebalance" or self.initial_left is not None or self.pending
        if not waits and all(member.join is not None for member in self.members.values()):
            self.complete()

    def complete(self) -> None:
        for who in [who for who, each in self.members.items() if each.join is None and each.request.instance is None]:
            self.drop(who)
        joined = [who for who, each in self.members.items() if each.join is not None]
        longest = max((each.request.rebalance_ms for each in self.members.values()), default=0)
        if self.members and not joined:
            self.join_due, self.initial_left = self.now + longest, None
            return
        self.generation += 1
        self.join_due = self.initial_left = None
        if not self.members:
            self.state, self.protocol = "Empty", None
            self.save()
            return
        self.leader = self.leader if self.leader in joined else joined[0]
        self.state, self.protocol = "CompletingRebalance", self.vote()
        self.unsynced, self.sync_due = set(self.members), self.now + longest
        for who, member in self.members.items():
            if member.join is not None:
                self.answer_generation(member.join, who)
            member.join, member.is_new, member.due = None, False, self.now + member.request.session_ms

    def assign(self, given: Mapping[int, bytes]) -> None:
        if not self.save(given):
            self.refuse_syncs(COORD_NA)
            self.prepare()
            return
        self.state = "Stable"
        for who, member in self.members.items():
            member.assignment = given.get(who, b"")
            if self.answer_sync(member, OK):
                member.due = self.now + member.request.session_ms

    def refuse_syncs(self, error: str) -> None:
        for member in self.members.values():
            member.assignment = b""
            if self.answer_sync(member, error):
                member.due = self.now + member.request.session_ms

    def synced(self, who: int) -> None:
        self.unsynced.discard(who)
        self.sync_due = self.sync_due if self.unsynced else None

    def remove(self, who: int) -> None:
        self.drop(who)
        self.prepare_if_possible()

    def drop(self, who: int) -> None:
        member = self.members[who]
        self.answer_join(member, UNKNOWN, None)
        self.answer_sync(member, UNKNOWN)
        del self.members[who]
        self.synced(who)
        if self.leader == who:
            self.leader = next(iter(self.members), None)

    # --- looking ----------------------------------------------------------------------------------------------------

    def check(self, who: int, instance: str | None) -> str:
        """Returns the error, empty for a known member."""
        if instance is not None:
            current = self.of_instance(instance)
            if current is None:
                return UNKNOWN
            if current != who:
                return FENCED
        return "" if who in self.members else UNKNOWN

    def of_instance(self, instance: str | None) -> int | None:
        found = [
            who for who, each in self.members.items() if instance is not None and each.request.instance == instance
        ]
        return found[0] if found else None

    def common(self) -> set[str]:
        return set.intersection(*({name for name, _ in each.request.protocols} for each in self.members.values()))

    def fits(self, request: JoinRequest) -> bool:
        if self.state == "Empty" or not self.members:
            return bool(request.protocols)
        return bool(self.common() & {name for name, _ in request.protocols})

    def vote(self) -> str:
        common = self.common()
        votes = [next(name for name, _ in each.request.protocols if name in common) for each in self.members.values()]
        return Counter(votes).most_common(1)[0][0]

    def subscriptions(self) -> tuple[tuple[int, bytes], ...]:
        return tuple((who, dict(each.request.protocols)[self.protocol or ""]) for who, each in self.members.items())

    # --- answering and saving ---------------------------------------------------------------------------------------

    def answer(self, number: int, error: str, who: int | None) -> None:
        self.answers[number] = (error, -1, None, None, who, (), False)

    def answer_generation(self, number: int, who: int) -> None:
        members = self.subscriptions() if who == self.leader else ()
        self.answers[number] = (OK, self.generation, self.protocol, self.leader, who, members, False)

    def answer_join(self, member: ReferenceMember, error: str, who: int | None) -> None:
        if member.join is not None:
            self.answer(member.join, error, who)
            member.join = None

    def answer_sync(self, member: ReferenceMember, error: str) -> bool:
        number, member.sync = member.sync, None
        if number is not None:
            self.answers[number] = (error, member.assignment if error == OK else b"")
        return number is not None

    def save(self, given: Mapping[int, bytes] | None = None) -> bool:
        """Stores the state that a restart finds. Of a member's protocols only the chosen one is kept."""
        if self.fails:
            return False
        members = {}
        for who, each in self.members.items():
            metadata = dict(each.request.protocols)[self.protocol or ""]
            kept = members[who] = ReferenceMember(each.request._replace(protocols=((self.protocol or "", metadata),)))
            kept.is_new, kept.assignment = False, each.assignment if given is None else given.get(who, b"")
        self.saved = (self.generation, self.protocol, self.leader, members)
        return True
