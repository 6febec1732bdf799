"""The format of the embedded metadata store's two files, and how torn and damaged content is read. No I/O.

Both are text files with one record per line, readable with `less`:

    crc SP json LF          crc: CRC-32C of the JSON's bytes, eight hexadecimal digits; the JSON contains no line feed

    metadata.snapshot       {"format": "odradek-metadata-snapshot", "version": 1, "number": N, "entries": K}
                            [path, data, version, children_version, created, owner, modified]    K, parents first
    metadata.journal        {"format": "odradek-metadata-journal", "version": 1}
                            {"number": N+1, "entries": [[path, data, ...], [path], ...]}    a path alone: entry deleted

Data is null or a string; bytes that are not UTF-8 are encoded as lone surrogates. `owner` is the id of an ephemeral
entry's session, else 0; earlier releases wrote true and false, which are read as 1 and 0. They did not write
`modified`, which is then read as `created`. Transaction numbers have no gaps. The journal may start before the
snapshot's number (after a crash between the two renames); transactions that the snapshot already contains are skipped.

    (A) The line feed is written last. Bytes after the journal's last line feed were being written when the power
        failed. They were never acknowledged and are dropped, unless only the line feed is missing. A file's first line
        is written before the file is renamed into place: without it the file is damaged.
    (B) A file system may keep a torn write's length and lose one of its pages, which then reads as zeros: a last line
        that contains zero bytes is dropped, too.
    (C) Any other mismatch is damage: StoreDamaged names file, line and byte, and nothing is changed.
    (D) A snapshot is renamed into place when it is complete: it has no torn tail, and must have its K entries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import crc32c

from odradek.broker.metadata_store.interface import Entry, NoEntry, StoreDamaged
from odradek.broker.metadata_store.tree import MetadataTree

SNAPSHOT_NAME = "metadata.snapshot"
JOURNAL_NAME = "metadata.journal"
SNAPSHOT_FORMAT = "odradek-metadata-snapshot"
JOURNAL_FORMAT = "odradek-metadata-journal"
FORMAT_VERSION = 1
_CRC_DIGITS = 8
_JSON = json.JSONEncoder(separators=(",", ":"))


class JournalContent(NamedTuple):
    """The content of a journal: the number of applied transactions, and whether the tail was torn. Do not append to a
    journal with a torn tail. `whole_bytes` is the position after the last line feed; `kept_tail` is the record after
    it, as a line, if that record was complete.
    """

    applied: int
    torn: bool
    whole_bytes: int
    kept_tail: bytes


def encode_line(value: Any) -> bytes:
    """Encodes one record as a line."""
    text = _JSON.encode(value).encode("ascii")
    return b"%08x %s\n" % (crc32c.crc32c(text), text)


def encode_journal_header() -> bytes:
    """The journal's first line."""
    return encode_line({"format": JOURNAL_FORMAT, "version": FORMAT_VERSION})


def encode_transaction(number: int, entries: dict[str, Entry | None]) -> bytes:
    """Encodes one transaction as a journal line."""
    rows = [[path] if entry is None else _row(path, entry) for path, entry in entries.items()]
    return encode_line({"number": number, "entries": rows})


def encode_snapshot(tree: MetadataTree) -> bytes:
    """Encodes a complete snapshot of `tree`."""
    return b"".join(snapshot_lines(tree.number, list(tree.items())))


def snapshot_lines(number: int, entries: Sequence[tuple[str, Entry]]) -> Iterator[bytes]:
    """Encodes a snapshot of these entries after this transaction, line by line."""
    yield encode_line({"format": SNAPSHOT_FORMAT, "version": FORMAT_VERSION, "number": number, "entries": len(entries)})
    for path, entry in entries:
        yield encode_line(_row(path, entry))


def read_snapshot(name: str, content: bytes, tree: MetadataTree) -> None:
    """Fills an empty `tree`. Raises StoreDamaged (C, D). `name` is the file name used in messages."""
    lines = _Lines(name, content, torn_tail_allowed=False)
    header = lines.header(SNAPSHOT_FORMAT)
    rows = 0
    for row in lines:
        rows += 1
        lines.apply(tree, 0, [row])
    if header.get("entries") != rows:
        raise lines.damage(f"has {rows} entries, but its first line says {header.get('entries')}")
    tree.number = lines.number_of(header)


def read_journal(name: str, content: bytes, tree: MetadataTree) -> JournalContent:
    """Applies the journal's transactions that `tree` does not contain yet. Raises StoreDamaged (C)."""
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
                f"starts with transaction {number}; the last known one is {tree.number}: is {SNAPSHOT_NAME} missing?"
            )
        lines.apply(tree, number, record.get("entries"))
        applied += 1
    return JournalContent(applied, lines.torn, lines.whole_bytes, lines.kept_tail)


def _row(path: str, entry: Entry) -> list[Any]:
    data = None if entry.data is None else entry.data.decode("utf-8", "surrogateescape")
    return [path, data, entry.version, entry.children_version, entry.created, entry.owner, entry.modified]


def _parse_rows(rows: Any) -> dict[str, Entry | None]:
    """Raises ValueError or TypeError unless `rows` is a list of rows."""
    entries: dict[str, Entry | None] = {}
    for row in rows:
        if len(row) == 1:
            entries[str(row[0])] = None
            continue
        path, data, version, children_version, created, owner, *modified = row
        (modified,) = modified or [created]
        raw = None if data is None else data.encode("utf-8", "surrogateescape")
        entries[path] = Entry(raw, int(version), int(children_version), int(owner), int(created), int(modified))
    return entries


class _Lines:
    """The records of one file, verified line by line. Remembers the position of the last record for error messages."""

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
        """The first line. Raises StoreDamaged unless it is a header of this format."""
        header = self._first
        if not isinstance(header, dict) or header.get("format") != expected_format:
            raise self.damage(f"does not start with a header of format {expected_format}")
        if header.get("version") != FORMAT_VERSION:
            raise self.damage(f"has version {header.get('version')}; this release reads version {FORMAT_VERSION}")
        return header

    def __iter__(self) -> Iterator[Any]:
        return self._records

    def number_of(self, record: Any) -> int:
        """The transaction number in `record`."""
        number = record.get("number") if isinstance(record, dict) else None
        if not isinstance(number, int):
            raise self.damage("has no transaction number")
        return number

    def apply(self, tree: MetadataTree, number: int, rows: Any) -> None:
        """Applies rows to `tree`; raises StoreDamaged for invalid rows."""
        try:
            tree.apply(number, _parse_rows(rows))
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise self.damage(f"contains an invalid entry ({error})") from error
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
            record = parse_line(line)
            if record is None and is_last and torn_tail_allowed:
                record = self._parse_tail(line)
            if is_last and self.torn:
                self.whole_bytes = position
                if record is None:
                    return
                self.kept_tail = encode_line(record)
            if record is None:
                raise self.damage("checksum does not match")
            position += len(line)
            yield record

    def _parse_tail(self, line: bytes) -> Any | None:
        """Returns the record of a last line that is not valid as written, or None if the line is torn. Raises
        StoreDamaged if it is complete and invalid.
        """
        if line.endswith(b"\n") and b"\0" not in line:
            raise self.damage("checksum does not match")
        self.torn = True
        return parse_line(line[:-1])


def _split(content: bytes) -> list[bytes]:
    parts = content.split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    if parts[-1]:
        lines.append(parts[-1])
    return lines


def parse_line(line: bytes) -> Any | None:
    """Returns the record in one line, or None if the checksum does not match."""
    text = line[_CRC_DIGITS + 1 :].removesuffix(b"\n")
    prefix = line[: _CRC_DIGITS + 1]
    if prefix != b"%08x " % crc32c.crc32c(text):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
