"""Spark's checkpoint, as a kill, a full disk or a mistake may have left it.

offsets/N    the plan of batch N: a line `v1`, a line of JSON (watermark and settings), a line of offsets per source
commits/N    batch N is done
sources/0/0  where batch 0 begins
metadata     the id of the query
state/       the keys that de-duplication remembers
query.json   ours: of what query this is

Only what is provably no part of any result is mended: the newest plan or commit that was torn while it was written. For
anything else `Damaged` names the file. What is to go is told first (`Mending`); who starts the query removes it.
(Spark's classes: HDFSMetadataLog, OffsetSeqLog, CommitLog.)
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.ledger import Offsets, offsets_of

VERSION = "v1"


class Damaged(PipelineError):
    """A file of the checkpoint cannot be read, and nothing can stand in for it."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(f"the checkpoint's file {file} is damaged: {why}", f"put it back; or {ANEW}")


@dataclass(frozen=True, slots=True)
class Removal:
    """A file or directory that may go, and the rest of a sentence that begins with its path."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}{self.why}"

    def carry_out(self) -> None:
        """Removes it; a file with its checksum."""
        if self.path.is_dir():
            shutil.rmtree(self.path)
            return
        self.path.unlink(missing_ok=True)
        self.path.with_name(f".{self.path.name}.crc").unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Mending:
    """What goes before Spark takes the checkpoint, in this order, and the newest batches that are then left."""

    removals: tuple[Removal, ...] = ()
    last_planned: int | None = None
    last_done: int | None = None

    def carry_out(self) -> None:
        """Removes it."""
        for removal in self.removals:
            removal.carry_out()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint in the directory `path`, which need not exist."""

    path: Path

    def last_planned(self) -> int | None:
        """The newest batch that has been planned."""
        return max(_numbers(self._plan_directory), default=None)

    def last_done(self) -> int | None:
        """The newest batch that Spark holds for done."""
        return max(_numbers(self.path / "commits"), default=None)

    def end_offsets(self, number: int) -> Offsets:
        """Up to where batch `number` reads. Raises Damaged."""
        return _offsets(self._plan_directory / str(number), 2)

    def start_offsets(self, number: int) -> Offsets:
        """From where batch `number` reads; partitions that came up later begin at 0. Raises Damaged."""
        before = self.end_offsets(number - 1) if number > 0 else _offsets(self._beginning, 1)
        return {
            topic: {partition: before.get(topic, {}).get(partition, 0) for partition in partitions}
            for topic, partitions in self.end_offsets(number).items()
        }

    @property
    def _plan_directory(self) -> Path:
        return self.path / "offsets"

    @property
    def _beginning(self) -> Path:
        return self.path / "sources" / "0" / "0"

    def query(self) -> dict[str, Any] | None:
        """Of what query this is, as `save_query` has said. Raises Damaged."""
        return read_object(self.path / "query.json")

    def save_query(self, fingerprint: Mapping[str, Any]) -> None:
        """Says of what query this is."""
        write_object(self.path / "query.json", fingerprint)

    def forget(self) -> None:
        """Removes all of it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def mending(self, written: int | None) -> Mending:
        """What a kill has torn and is to go; nothing is changed yet. Raises Damaged.

        `written`: the newest batch of this checkpoint that any table has a part of."""
        removals = [*self._lone_checksums(), *self._hidden_plans(), *self._torn_metadata()]
        last_done, torn_commit = self._commits()
        last_planned, torn_plan = self._plans(written, last_done)
        removals += [*torn_commit, *torn_plan, *self._torn_beginning(written, last_done)]
        if any(one.path == self._plan_directory for one in removals):
            last_planned = None
        return Mending(tuple(removals), last_planned, last_done)

    def _lone_checksums(self) -> Iterator[Removal]:
        """A checksum without its file: Spark refuses to write that file anew."""
        for place in (self.path, self._plan_directory, self.path / "commits", self._beginning.parent):
            for checksum in place.glob(".*.crc"):
                if not checksum.with_name(checksum.name.removeprefix(".").removesuffix(".crc")).exists():
                    yield Removal(checksum, ", whose file is gone")

    def _hidden_plans(self) -> Iterator[Removal]:
        """offsets/ with nothing but the temporary file of a killed write: newer Sparks refuse such a directory."""
        if self._plan_directory.is_dir() and not _numbers(self._plan_directory):
            if _numbers(self.path / "commits"):
                raise Damaged(self._plan_directory, "it is empty, although batches were committed")
            yield Removal(self._plan_directory, ", which holds no plan")

    def _torn_metadata(self) -> Iterator[Removal]:
        """The query's id is only shown to people; Spark makes another."""
        file = self.path / "metadata"
        try:
            if file.exists() and not isinstance(json.loads(file.read_text()).get("id"), str):
                raise ValueError
        except (ValueError, AttributeError):
            yield Removal(file, ": torn; the query gets a new id")

    def _commits(self) -> tuple[int | None, list[Removal]]:
        """The newest whole commit. Without its commit a batch is repeated, and finds itself written."""
        newest = self.last_done()
        if newest is None or _is_log(self.path / "commits" / str(newest)):
            return newest, []
        older = [number for number in _numbers(self.path / "commits") if number < newest]
        return max(older, default=None), [Removal(self.path / "commits" / str(newest), ": torn; the batch is repeated")]

    def _plans(self, written: int | None, last_done: int | None) -> tuple[int | None, list[Removal]]:
        """The newest whole plan. One that nothing was done by is made anew."""
        newest, torn = self.last_planned(), []
        if newest is None:
            return None, []
        try:
            self.end_offsets(newest)
        except Damaged:
            if max(-1 if last_done is None else last_done, -1 if written is None else written) >= newest:
                raise
            torn = [Removal(self._plan_directory / str(newest), ": torn before anything was done by it")]
            newest -= 1
        if newest >= 1:
            self.end_offsets(newest - 1)
        return max((number for number in _numbers(self._plan_directory) if number <= newest), default=None), torn

    def _torn_beginning(self, written: int | None, last_done: int | None) -> Iterator[Removal]:
        """Spark wants it to be whole for ever, and needs it until the first batch is done."""
        if not self._beginning.exists():
            return
        try:
            _offsets(self._beginning, 1)
        except Damaged:
            if last_done is not None:
                yield Removal(self._beginning, ": torn, and needed no more")
                return
            if written is not None:
                raise
            if _numbers(self._plan_directory):
                yield Removal(self._plan_directory, ", a plan from a torn beginning that nothing was done by")
            yield Removal(self._beginning, ": torn before the first batch was written")


def read_object(file: Path) -> dict[str, Any] | None:
    """A file of one JSON object; None if it is not there. Raises Damaged."""
    try:
        content = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Damaged(file, "it is not JSON") from error
    if not isinstance(content, dict):
        raise Damaged(file, "it is no object")
    return content


def write_object(file: Path, content: Mapping[str, Any]) -> None:
    """Writes such a file, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_name(f".{file.name}.tmp")
    fresh.write_text(json.dumps(content, indent=1, sort_keys=True))
    os.replace(fresh, file)


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return [int(one.name) for one in directory.iterdir() if one.name.isascii() and one.name.isdigit()]


def _lines(file: Path) -> list[str]:
    try:
        text = file.read_bytes().lstrip(b"\0").decode()
    except FileNotFoundError as error:
        raise Damaged(file, "it is not there") from error
    except ValueError as error:
        raise Damaged(file, "it is not text") from error
    lines = text.splitlines()
    if not lines or lines[0] != VERSION:
        raise Damaged(file, "it is empty" if not lines else f"it begins with {lines[0][:20]!r}")
    return lines


def _is_log(file: Path) -> bool:
    """Whether the file has its version and JSON in each line after."""
    try:
        return bool([json.loads(line) for line in _lines(file)[1:]])
    except (Damaged, ValueError):
        return False


def _offsets(file: Path, line: int) -> Offsets:
    lines = _lines(file)
    if len(lines) <= line:
        raise Damaged(file, "it is cut short")
    try:
        return offsets_of(lines[line])
    except (ValueError, AttributeError, TypeError) as error:
        raise Damaged(file, f"line {line + 1} holds no offsets") from error
