"""Requests whose answers depend on ACLs: tables of them, and the recording of one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import Document
from tests.broker.authorization.acl_states import (
    Names,
    few_states,
    many_states,
    needs_of,
    states_for_everyone,
)
from tests.broker.authorization.stage import Stage, noted, only_of

Making = Callable[[Names, Stage], Document]
Preparation = Callable[[Names, Stage], Awaitable[None]]


def always(document: Document) -> Making:
    """A request that is the same in all cases."""
    return lambda names, stage: document


class Case(NamedTuple):
    """A request that alice sends in several versions and states of ACLs.

    `needs`: what it needs, as `needs_of` reads it; `states`: further states. `is_fresh`: every request has names of
    its own, since an allowed one changes what exists. `lists`: the answer names everything that exists. `pick`: what
    is recorded of an answer.
    """

    name: str
    api: ApiKey
    versions: tuple[int, ...]
    needs: str
    document: Making
    states: tuple[str, ...] = ()
    prepare: Preparation | None = None
    is_fresh: bool = False
    lists: bool = False
    pick: Callable[[Document], Any] | None = None


class Line(NamedTuple):
    """The answers to one request in one version: each with the states in which it is given."""

    api: str
    version: int
    request: str
    everyone: bool
    """Whether the broker has allow.everyone.if.no.acl.found."""
    answers: list[tuple[Any, list[str]]]

    @property
    def key(self) -> str:
        return f"{self.api} {self.version}, {self.request}{', for everyone' if self.everyone else ''}"

    def by_state(self) -> dict[str, Any]:
        return {state: answer for answer, states in self.answers for state in states}

    def to_json(self) -> str:
        document = {**self._asdict(), "answers": self.answers}
        if not self.everyone:
            del document["everyone"]
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Line:
        document = json.loads(text)
        answers = [(answer, states) for answer, states in document.pop("answers")]
        return cls(**{"everyone": False, **document}, answers=answers)


class Cases(list[Case]):
    """A table of cases."""

    def add(
        self,
        name: str,
        api: ApiKey,
        versions: Sequence[int],
        needs: str,
        document: Making,
        states: tuple[str, ...] = (),
        **options: Any,
    ) -> None:
        self.append(Case(name, api, tuple(versions), needs, document, states, **options))


def states_of(case: Case, version: int, *, is_thorough: bool = True) -> list[str]:
    """Many states for the last version, few for the others."""
    needs = needs_of(case.needs)
    if version != case.versions[-1]:
        return few_states(needs)
    return list(dict.fromkeys([*(many_states if is_thorough else few_states)(needs), *case.states]))


async def lines_of(case: Case, stage: Stage, *, everyone: bool, is_thorough: bool = True) -> list[Line]:
    """Sends the requests of a case to a broker, and returns what it has answered. Not `is_thorough`: those that show
    where denials are, without those that show what ACLs there can be."""
    if everyone:
        states = states_for_everyone(needs_of(case.needs))
        return [await _line_of(case, stage, case.versions[-1], states, everyone=True)]
    return [
        await _line_of(case, stage, version, states_of(case, version, is_thorough=is_thorough), everyone=False)
        for version in case.versions
    ]


async def _line_of(case: Case, stage: Stage, version: int, states: list[str], *, everyone: bool) -> Line:
    found: dict[str, tuple[Any, list[str]]] = {}
    shared = _itself if not case.is_fresh else None
    if case.prepare is not None and shared is not None:
        await case.prepare(shared, stage)
    for state in states:
        names = shared or stage.new_names()
        answer = json.loads(json.dumps(await _answer(case, stage, version, state, names)))
        found.setdefault(json.dumps(answer), (answer, []))[1].append(state)
    return Line(case.api.name, version, case.name, everyone, list(found.values()))


async def _answer(case: Case, stage: Stage, version: int, state: str, names: Names) -> Any:
    if case.prepare is not None and case.is_fresh:
        await case.prepare(names, stage)
    await stage.set_acls(state, names)
    answer = await stage.alice.settled(case.api, version, case.document(names, stage))
    if case.pick is not None and answer is not None:
        return case.pick(answer)
    return noted(only_of(answer, names) if case.lists else answer, stage.ids)


def _itself(name: str) -> str:
    return name
