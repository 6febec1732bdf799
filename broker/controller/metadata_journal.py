"""The embedded metadata store's two files: their format, and what reading them makes of torn and damaged content. Pure.

Both are text, one record a line, so that they can be read with `less`:

    crc SP json LF          crc: CRC-32C of the JSON's bytes, eight hexadecimal digits; the JSON holds no line end

    metadata.snapshot       {"format": "odradek-metadata-snapshot", "version": 1, "number": N, "entries": K}
                            [path, data, version, children_version, created, ephemeral]     K of these, parents first
    metadata.journal        {"format": "odradek-metadata-journal", "version": 1}
                            {"number": N+1, "entries": [[path, data, ...], [path], ...]}    a path alone: the entry goes

Data is null or a string; bytes that are not UTF-8 stand in it as lone surrogates. Transactions are numbered without
gaps. The journal may begin before the snapshot's number (the crash came between the two renames): what the snapshot
contains already is skipped.

    (A) A line end is written last. What stands behind the journal's last line end was being written when the power
        went, was never acknowledged, and is dropped. If it is whole but for its line end it is kept. A file's first
        line is there before its name is: without it the file is damaged.
    (B) A file system may keep a torn write's length and lose a page of it, which then reads as zeros: a last line
        with zero bytes is dropped, too.
    (C) Anything else that does not fit is damage: StoreDamaged names file, line and byte, and nothing is changed.
    (D) A snapshot is renamed into place when it is whole: it has no torn tail, and must have its K entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import crc32c

from odradek.broker.controller.metadata_store import Entry, NoEntry, StoreDamaged
from odradek.broker.controller.metadata_tree import MetadataTree

SNAPSHOT_NAME = "metadata.snapshot"
JOURNAL_NAME = "metadata.journal"
SNAPSHOT_FORMAT = "odradek-metadata-snapshot"
JOURNAL_FORMAT = "odradek-metadata-journal"
FORMAT_VERSION = 1
_CRC_DIGITS = 8


class JournalContent(NamedTuple):
    """What a journal held: how many transactions were applied, and whether its tail was torn: then it must not be
    appended to. `whole_bytes`: where its last line end stands; `kept_tail`: what follows, as a line, if it was kept.
    """

    applied: int
    torn: bool
    whole_bytes: int
    kept_tail: bytes


def encode_line(value: Any) -> bytes:
    """One record as a line."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    return b"%08x %s\n" % (crc32c.crc32c(text), text)


def encode_journal_header() -> bytes:
    """The journal's first line."""
    return encode_line({"format": JOURNAL_FORMAT, "version": FORMAT_VERSION})


def encode_transaction(number: int, entries: dict[str, Entry | None]) -> bytes:
    """One journal line."""
    rows = [[path] if entry is None else _row(path, entry) for path, entry in entries.items()]
    return encode_line({"number": number, "entries": rows})


def encode_snapshot(tree: MetadataTree) -> bytes:
    """A whole snapshot of `tree`."""
    header = {"format": SNAPSHOT_FORMAT, "version": FORMAT_VERSION, "number": tree.number, "entries": len(tree)}
    lines = [encode_line(header)]
    lines.extend(encode_line(_row(path, entry)) for path, entry in tree.items())
    return b"".join(lines)


def read_snapshot(name: str, content: bytes, tree: MetadataTree) -> None:
    """Fills an empty `tree`. Raises StoreDamaged (C, D). `name` is the file's name for messages."""
    lines = _Lines(name, content, torn_tail_allowed=False)
    header = lines.header(SNAPSHOT_FORMAT)
    rows = 0
    for row in lines:
        rows += 1
        lines.apply(tree, 0, [row])
    if header.get("entries") != rows:
        raise lines.damage(f"has {rows} entries, not the {header.get('entries')} of its first line")
    tree.number = lines.number_of(header)


def read_journal(name: str, content: bytes, tree: MetadataTree) -> JournalContent:
    """Applies the journal's transactions that `tree` has not. Raises StoreDamaged (C)."""
    lines = _Lines(name, content, torn_tail_allowed=True)
    applied = 0
    lines.header(JOURNAL_FORMAT)
    previous: int | None = None
    for record in lines:
        number = lines.number_of(record)
        if previous is not None and number != previous + 1:
            raise lines.damage(f"transaction {number} follows {previous}")
        previous = number
        if number <= tree.number:
            continue
        if number != tree.number + 1:
            raise lines.damage(
                f"begins with transaction {number}; the last one known is {tree.number}: is {SNAPSHOT_NAME} missing?"
            )
        lines.apply(tree, number, record.get("entries"))
        applied += 1
    return JournalContent(applied, lines.torn, lines.whole_bytes, lines.kept_tail)


def _row(path: str, entry: Entry) -> list[Any]:
    data = None if entry.data is None else entry.data.decode("utf-8", "surrogateescape")
    return [path, data, entry.version, entry.children_version, entry.created, entry.ephemeral]


def _parse_rows(rows: Any) -> dict[str, Entry | None]:
    """Raises ValueError or TypeError for anything that is no list of rows."""
    entries: dict[str, Entry | None] = {}
    for row in rows:
        if len(row) == 1:
            entries[str(row[0])] = None
            continue
        path, data, version, children_version, created, ephemeral = row
        raw = None if data is None else data.encode("utf-8", "surrogateescape")
        entries[path] = Entry(raw, int(version), int(children_version), bool(ephemeral), int(created))
    return entries


class _Lines:
    """The records of one file, checked line by line, with the place of the last one read for messages."""

    def __init__(self, name: str, content: bytes, *, torn_tail_allowed: bool) -> None:
        self.torn = bool(content) and not content.endswith(b"\n")
        self.whole_bytes = len(content)
        self.kept_tail = b""
        self._name = name
        self._line_number = 0
        self._position = 0
        self._records = self._read(_split(content), torn_tail_allowed)
        self._first = next(self._records, None)

    def header(self, expected_format: str) -> dict[str, Any]:
        """The first line. Raises StoreDamaged if it is not that of this format."""
        header = self._first
        if not isinstance(header, dict) or header.get("format") != expected_format:
            raise self.damage(f"does not begin as a file of format {expected_format}")
        if header.get("version") != FORMAT_VERSION:
            raise self.damage(f"is of version {header.get('version')}; this release reads version {FORMAT_VERSION}")
        return header

    def __iter__(self) -> Iterator[Any]:
        return self._records

    def number_of(self, record: Any) -> int:
        """The transaction number in `record`."""
        number = record.get("number") if isinstance(record, dict) else None
        if not isinstance(number, int):
            raise self.damage("names no transaction number")
        return number

    def apply(self, tree: MetadataTree, number: int, rows: Any) -> None:
        """Applies rows to `tree`, turning what does not fit into StoreDamaged."""
        try:
            tree.apply(number, _parse_rows(rows))
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise self.damage(f"holds no valid entry ({error})") from error
        except NoEntry as error:
            raise self.damage(str(error)) from error

    def damage(self, reason: str) -> StoreDamaged:
        """The error for the line read last."""
        return StoreDamaged(
            "", f"metadata store damaged: {self._name}, line {self._line_number}, byte {self._position}: {reason}"
        )

    def _read(self, lines: list[bytes], torn_tail_allowed: bool) -> Iterator[Any]:
        position = 0
        for index, line in enumerate(lines):
            self._line_number, self._position = index + 1, position
            is_last = index == len(lines) - 1
            record = _parse_line(line)
            if record is None and is_last and torn_tail_allowed:
                record = self._parse_tail(line)
            if is_last and self.torn:
                self.whole_bytes = position
                if record is None:
                    return
                self.kept_tail = encode_line(record)
            if record is None:
                raise self.damage("checksum does not fit")
            position += len(line)
            yield record

    def _parse_tail(self, line: bytes) -> Any | None:
        """The record of a last line that does not fit as it is, None if it is torn. Raises StoreDamaged if it is
        neither.
        """
        if line.endswith(b"\n") and b"\0" not in line:
            raise self.damage("checksum does not fit")
        self.torn = True
        return _parse_line(line[:-1])


def _split(content: bytes) -> list[bytes]:
    parts = content.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    if parts[-1]:
        lines.append(parts[-1])
    return lines


def _parse_line(line: bytes) -> Any | None:
    """The record in one line, or None if its checksum does not fit."""
    text = line[_CRC_DIGITS + 1 :].removesuffix(b"\n")
    prefix = line[: _CRC_DIGITS + 1]
    if prefix != b"%08x " % crc32c.crc32c(text):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
