"""Requests that follow one another, whose answers are noted in their order."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import Document
from tests.broker.authorization.stage import Client, Stage, noted

Play = Callable[["Notes"], Awaitable[None]]


class Notes:
    """A script's stage and version, and what it has noted."""

    def __init__(self, stage: Stage, version: int) -> None:
        self.stage = stage
        self.version = version
        self.entries: list[tuple[str, Any]] = []

    async def ask(
        self,
        about: str,
        api: ApiKey,
        document: Document,
        *,
        version: int | None = None,
        client: Client | None = None,
        pick: Callable[[Document], Any] | None = None,
        **options: Any,
    ) -> Document | None:
        """Sends admin's request, or another client's, and notes the answer, or what is picked of it."""
        asked = self.version if version is None else version
        answer = await (client or self.stage.admin).ask(api, asked, document, **options)
        seen = noted(answer, self.stage.ids) if pick is None or answer is None else pick(answer)
        self.entries.append((about, seen))
        return answer


class Script(NamedTuple):
    name: str
    api: ApiKey
    versions: tuple[int, ...]
    play: Play


class ScriptLine(NamedTuple):
    """What a script has noted in one version."""

    api: str
    version: int
    script: str
    notes: list[tuple[str, Any]]

    @property
    def key(self) -> str:
        return f"{self.api} {self.version}, {self.script}"

    def to_json(self) -> str:
        return json.dumps(self._asdict(), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> ScriptLine:
        document = json.loads(text)
        notes = [(about, answer) for about, answer in document.pop("notes")]
        return cls(**document, notes=notes)


class Scripts(list[Script]):
    """A table of scripts that is filled by decorating functions."""

    def of(self, api: ApiKey, versions: Iterable[int]) -> Callable[[Play], Play]:
        def add(play: Play) -> Play:
            name = getattr(play, "__name__", "").replace("_", " ")
            self.append(Script(name, api, tuple(versions), play))
            return play

        return add


async def script_lines(script: Script, stage: Stage) -> list[ScriptLine]:
    """Plays a script in all its versions."""
    lines = []
    for version in script.versions:
        await stage.drop_acls()
        notes = Notes(stage, version)
        await script.play(notes)
        entries = json.loads(json.dumps(notes.entries))
        lines.append(ScriptLine(script.api.name, version, script.name, [(about, seen) for about, seen in entries]))
    await stage.drop_acls()
    return lines
