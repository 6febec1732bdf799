"""Spark's checkpoint, as a kill, a full disk or a mistake may have left it.

offsets/N    the plan of batch N: a line `v1`, a line of JSON (watermark and settings), a line of offsets per source
commits/N    batch N is done
sources/0/0  where batch 0 begins
metadata     the id of the query
state/       the keys that de-duplication remembers
query.json   ours: of what query this is

Only what is provably no part of any result is mended: the newest plan or commit that was torn while it was written. For
anything else `Damaged` names the file. (Spark's classes: HDFSMetadataLog, OffsetSeqLog, CommitLog.)
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.errors import PipelineError
from pipeline.ledger import Offsets, offsets_of

VERSION = "v1"


class Damaged(PipelineError):
    """A file of the checkpoint cannot be read, and nothing can stand in for it."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(f"the checkpoint's file {file} is damaged: {why}")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint in the directory `path`, which need not exist."""

    path: Path

    def last_planned(self) -> int | None:
        """The newest batch that has been planned."""
        return max(_numbers(self.path / "offsets"), default=None)

    def last_done(self) -> int | None:
        """The newest batch that Spark holds for done."""
        return max(_numbers(self.path / "commits"), default=None)

    def end_offsets(self, number: int) -> Offsets:
        """Up to where batch `number` reads. Raises Damaged."""
        return _offsets(self.path / "offsets" / str(number), 2)

    def start_offsets(self, number: int) -> Offsets:
        """From where batch `number` reads; partitions that came up later begin at 0. Raises Damaged."""
        before = self.end_offsets(number - 1) if number > 0 else _offsets(self._beginning, 1)
        return {
            topic: {partition: before.get(topic, {}).get(partition, 0) for partition in partitions}
            for topic, partitions in self.end_offsets(number).items()
        }

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

    def mend(self, written: int | None) -> list[str]:
        """Removes what a kill has torn; sentences on what was removed. Raises Damaged.

        `written`: the newest batch of this checkpoint that any table has a part of."""
        done: list[str] = []
        self._mend_checksums(done)
        self._mend_hidden(done)
        self._mend_metadata(done)
        self._mend_commits(done)
        self._mend_plans(written, done)
        self._mend_beginning(written, done)
        return done

    def _mend_checksums(self, done: list[str]) -> None:
        """A checksum without its file: Spark refuses to write that file anew."""
        for place in (self.path, self.path / "offsets", self.path / "commits", self._beginning.parent):
            for checksum in place.glob(".*.crc"):
                if not checksum.with_name(checksum.name.removeprefix(".").removesuffix(".crc")).exists():
                    checksum.unlink()
                    done.append(f"removed {checksum}, whose file is gone")

    def _mend_hidden(self, done: list[str]) -> None:
        """offsets/ with nothing but the temporary file of a killed write: newer Sparks refuse such a directory."""
        offsets = self.path / "offsets"
        if offsets.is_dir() and not _numbers(offsets):
            if _numbers(self.path / "commits"):
                raise Damaged(offsets, "it is empty, although batches were committed")
            shutil.rmtree(offsets)
            done.append(f"removed {offsets}, which held no plan")

    def _mend_metadata(self, done: list[str]) -> None:
        """The query's id is only shown to people; Spark makes another."""
        file = self.path / "metadata"
        try:
            if file.exists() and not isinstance(json.loads(file.read_text()).get("id"), str):
                raise ValueError
        except (ValueError, AttributeError):
            done.append(_removed(file, "torn; the query gets a new id"))

    def _mend_commits(self, done: list[str]) -> None:
        """Without its commit a batch is repeated, and finds itself written."""
        newest = self.last_done()
        if newest is not None and not _is_log(self.path / "commits" / str(newest)):
            done.append(_removed(self.path / "commits" / str(newest), "torn; the batch is repeated"))

    def _mend_plans(self, written: int | None, done: list[str]) -> None:
        """A plan that nothing was done by is made anew."""
        newest = self.last_planned()
        if newest is None:
            return
        file = self.path / "offsets" / str(newest)
        try:
            self.end_offsets(newest)
        except Damaged:
            last_done = self.last_done()
            if max(-1 if last_done is None else last_done, -1 if written is None else written) >= newest:
                raise
            done.append(_removed(file, "torn before anything was done by it"))
            newest -= 1
        if newest >= 1:
            self.end_offsets(newest - 1)

    def _mend_beginning(self, written: int | None, done: list[str]) -> None:
        """Spark wants it to be whole for ever, and needs it until the first batch is done."""
        if not self._beginning.exists():
            return
        try:
            _offsets(self._beginning, 1)
        except Damaged:
            if self.last_done() is not None:
                done.append(_removed(self._beginning, "torn, and needed no more"))
                return
            if written is not None:
                raise
            done.append(_removed(self._beginning, "torn before the first batch was written"))
            shutil.rmtree(self.path / "offsets", ignore_errors=True)


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


def _removed(file: Path, why: str) -> str:
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return f"removed {file}: {why}"
