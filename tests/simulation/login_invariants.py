"""The invariants of a secured cluster.

admitted    A login with the right password is never refused, and no client is denied what it has a right to.
proved      Nobody gets an answer without a login or with a wrong password, or
awake       after the end of a session.
denied      A user without rights can do nothing. No record of an intruder is in a log, and nobody reads one.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.access_history import Visit
from tests.simulation.final_state import FinalState
from tests.simulation.history import History, Outcome, Read
from tests.simulation.intruders import INTRUDERS
from tests.simulation.login_history import Attempt, LoggedIn, Overslept, Unproven
from tests.simulation.violation import Violation

DENIAL = "AUTHORIZATION_FAILED"


def who_has_rights_is_admitted(history: History, final: FinalState) -> Iterator[Violation]:
    """admitted"""
    for operation in history.operations:
        if isinstance(operation, LoggedIn) and operation.outcome is Outcome.FAILED:
            yield Violation("admitted", f"{operation.process}: {operation.error}", (operation,))
        elif DENIAL in operation.error and not isinstance(operation, Attempt | Visit):
            yield Violation("admitted", f"{operation.process} was denied what it may do", (operation,))


def logins_are_proved(history: History, final: FinalState) -> Iterator[Violation]:
    """proved"""
    for attempt in history.of(Unproven):
        if attempt.outcome is Outcome.OK:
            text = f"{attempt.process} was answered without a proof of who it is: it tried to {attempt.what}"
            yield Violation("proved", text, (attempt,))


def sessions_end(history: History, final: FinalState) -> Iterator[Violation]:
    """awake"""
    for attempt in history.of(Overslept):
        if attempt.outcome is Outcome.OK:
            yield Violation("awake", f"{attempt.process} was answered after the end of its session", (attempt,))


def who_has_no_rights_is_denied(history: History, final: FinalState) -> Iterator[Violation]:
    """denied"""
    for attempt in history.of(Attempt):
        if type(attempt) is Attempt and attempt.outcome is Outcome.OK:
            yield Violation("denied", f"{attempt.process} had no right to {attempt.what}, and was allowed", (attempt,))
    for read in history.of(Read):
        for record in read.records:
            if _is_of_an_intruder(record.text):
                yield Violation("denied", f"{read.process} read {record.text}", (read,))
    for partition, log in final.logs.items():
        for stored in log.records:
            if _is_of_an_intruder(stored.text):
                yield Violation("denied", f"{stored.text} is in the log of {partition}")


def _is_of_an_intruder(text: str) -> bool:
    return text.partition(":")[0] in INTRUDERS
