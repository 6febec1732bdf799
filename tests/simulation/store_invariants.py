"""The invariants of the brokers' sessions with the metadata store, as clients of their own see them (client/store.py).

    watches       When the answer to a read shows that an entry has changed, every earlier watch of it in this session
                  has been called. So no watch is lost with a connection, and no answer comes before its event.
    fresh         A read sees every change that was confirmed to anybody before it began.
    confirmed     A change that was confirmed was carried out, once. One that was refused was not, unless another has
                  followed before the client heard of it: then its own cannot be told from the other's.
    sessions      A call is carried out in the session in which it was made.
    names         A sequential name ends with the number of entries created beside it before.
    limits        A change above the limit is refused, and ends no connection.
    heard         The controller knows of the brokers that come and go.

Source: the guarantees of `odradek.broker.metadata_store.interface`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.simulation.final_state import FinalState
from tests.simulation.history import History, Outcome
from tests.simulation.store_history import Applied, Named, Owned, StoreChange, StoreRead, TooLong, Unheard
from tests.simulation.violation import Violation


def watches_are_called_in_time(history: History, final: FinalState) -> Iterator[Violation]:
    """watches"""
    for read in history.of(StoreRead):
        if read.silent_since >= 0:
            text = f"{read.process} read version {read.version} of {read.path} before its watch since version"
            yield Violation("watches", f"{text} {read.silent_since} was called", (read,))


def reads_are_fresh(history: History, final: FinalState) -> Iterator[Violation]:
    """fresh"""
    changes: dict[str, list[StoreChange]] = defaultdict(list)
    for change in history.of(StoreChange):
        if change.outcome is Outcome.OK:
            changes[change.path].append(change)
    for read in history.of(StoreRead):
        if read.outcome is not Outcome.OK:
            continue
        for change in changes[read.path]:
            if change.ended_us < read.invoked_us and change.version > read.version:
                text = f"{read.process} read version {read.version} of {read.path} after {change.version} was confirmed"
                yield Violation("fresh", text, (change, read))
                break


def changes_are_as_confirmed(history: History, final: FinalState) -> Iterator[Violation]:
    """confirmed"""
    applied: dict[str, list[Applied]] = defaultdict(list)
    following: dict[Applied, Applied] = {}
    latest: dict[str, Applied] = {}
    for each in history.of(Applied):
        applied[each.text].append(each)
        if each.path in latest:
            following[latest[each.path]] = each
        latest[each.path] = each
    for change in history.of(StoreChange):
        found = applied[change.text]
        if len(found) > 1:
            yield Violation("confirmed", f"carried out twice: {change.describe()}", (change, *found))
        elif change.outcome is Outcome.OK and not found:
            yield Violation("confirmed", f"confirmed, and not carried out: {change.describe()}", (change,))
        elif change.outcome is Outcome.FAILED and found:
            next_one = following.get(found[0])
            if next_one is None or next_one.invoked_us > change.ended_us:
                yield Violation("confirmed", f"refused, and carried out: {change.describe()}", (change, found[0]))


def calls_keep_to_their_session(history: History, final: FinalState) -> Iterator[Violation]:
    """sessions"""
    for owned in history.of(Owned):
        if owned.session_id != owned.wanted_id:
            yield Violation("sessions", f"the store {owned.describe()}", (owned,))


def names_count_creations(history: History, final: FinalState) -> Iterator[Violation]:
    """names"""
    for named in history.of(Named):
        if named.number != named.created_before:
            yield Violation("names", f"the store {named.describe()}", (named,))
            return


def long_changes_are_refused(history: History, final: FinalState) -> Iterator[Violation]:
    """limits"""
    for change in history.of(TooLong):
        if not change.refused:
            yield Violation("limits", f"{change.process} was not refused to {change.describe()}", (change,))


def the_controller_hears_of_brokers(history: History, final: FinalState) -> Iterator[Violation]:
    """heard"""
    for unheard in history.of(Unheard):
        yield Violation("heard", f"{unheard.process} {unheard.describe()}", (unheard,))
