"""The walk over a batch's records: the one loop that runs for every record a client sends.

(A) It can run in turns: ten million records of a few bytes each, or one record with as many headers, must not delay
    everything else.
(B) The records can arrive in pieces, cut anywhere, and only the last piece is held. Its verdict is that over the whole.
    The loop passes the records that lie within a piece. The record in which a piece ends is passed field by field: a
    key, a value or a header may continue through many pieces, and the walk keeps none of their bytes.

A record (KIP-98, Kafka's DefaultRecord) is::

    length           varint   bytes of the record after this field
    attributes       int8     unused
    timestamp delta  varlong  relative to the batch's base timestamp
    offset delta     varint   relative to the batch's base offset
    key length       varint   -1: null; then that many bytes
    value length     varint   -1: null; then that many bytes
    header count     varint   not negative, at most the remaining bytes
    each header      varint   key length, not negative; the key; varint value length, -1: null; the value

Varints are ZigZag; overlong forms are accepted up to five bytes (ten for a varlong). In stored records, bits beyond the
width are dropped, and any length below 0 is null, as Kafka reads them. The walk accepts neither, since librdkafka waits
forever at such a record.

This module runs in two ways: interpreted by CPython, and compiled (see compiled_modules.txt), where `i64` is a machine
integer and `data[position]` a memory access. So it takes only `bytes`, raises no exceptions inside the loop, and does
no arithmetic beyond 64 bits, where the two would differ. The loop decodes varints of one and two bytes, which are
nearly all of them, inline: with a function call for each it is three times as slow compiled, and twice as slow
interpreted.
"""

from typing import Final

from mypy_extensions import i64

# The error of the record at the walk's index.
WHOLE: Final = 0
BAD_LENGTH: Final = 1
BAD_VARINT: Final = 2
FIELD_BEYOND_RECORD: Final = 3
BAD_HEADER_COUNT: Final = 4
BAD_HEADER_KEY: Final = 5
BYTES_LEFT_IN_RECORD: Final = 6
BYTES_LEFT_IN_BATCH: Final = 7
TOO_FEW_RECORDS: Final = 8
BAD_NULL: Final = 9

# Attributes, both deltas, two lengths and a count take at least a byte each.
_SMALLEST_RECORD: Final = 6
_NULL: Final = 1
"""The varint of -1."""
_HIGHEST_BITS: Final = 0x0F
"""The largest fifth byte of a varint of 32 bits."""
_MANY_HEADERS: Final = 0x10
"""From this varint (eight headers) on, headers count as items; fewer are passed with their record."""
_BIT_62: Final = 1 << 62

_LONGEST_VARINT: Final = 5
_LONGEST_FIELD: Final = 11
"""The attributes and the longest timestamp delta. A key counts without its bytes."""
_BEGINNING: Final = 26
"""The largest total size of a record's length, attributes, deltas and key length."""

# What of a record that takes more than one turn or piece comes next.
_LENGTH: Final = 0
_TIMESTAMP: Final = 1
_OFFSET: Final = 2
_KEY: Final = 3
_VALUE: Final = 4
_HEADER_COUNT: Final = 5
_HEADER_KEY: Final = 6
_HEADER_VALUE: Final = 7
_END: Final = 8


class RecordPassage:
    """A pass over `count` records in `data[start:end]`, or, if `is_open`, in that and further pieces."""

    def __init__(self, data: bytes, start: int, end: int, count: int, is_open: bool) -> None:
        self._data = data
        self._position: i64 = start
        self._end: i64 = min(end, len(data))
        self._is_open = is_open
        self._count: i64 = count
        self.index: i64 = 0

    def feed(self, piece: bytes, is_last: bool) -> None:
        """Continues with the next piece of the records, after `take` has returned True for the one before."""
        begin: i64 = self._position
        if begin < self._end:
            self._data = b"".join((self._data[begin : self._end], piece))
        else:
            begin = self._end
            self._data = piece
        self._end = len(self._data)
        self._is_open = not is_last
        self._move(begin)

    def _move(self, distance: i64) -> None:
        self._position -= distance


class RecordWalk(RecordPassage):
    """A walk over exactly `count` records, and the statistics that a leader needs of them.

    `outcome` is WHOLE, or one of the numbers above for the record `index`, at which the walk ended. `least` and `most`
    are the extreme timestamp deltas (0 without records), `without_key` counts the records without a key,
    `out_of_sequence` those whose offset delta is not their index, and `largest` is the length of the longest one, as
    its first field has it. Positions beyond the data count as its end.
    """

    def __init__(self, data: bytes, start: int, end: int, count: int, is_open: bool = False) -> None:
        super().__init__(data, start, end, count, is_open)
        self.outcome: i64 = WHOLE
        self.least: i64 = 0
        self.most: i64 = 0
        self.without_key: i64 = 0
        self.out_of_sequence: i64 = 0
        self.largest: i64 = 0
        self._needs_piece = False
        self._field: i64 = _LENGTH
        self._record_end: i64 = start
        self._record_outcome: i64 = WHOLE
        self._headers_left: i64 = 0

    @property
    def has_failed(self) -> bool:
        return self.outcome != WHOLE

    def take(self, items: i64) -> bool:
        """Passes up to `items` records and headers; returns whether the walk has ended, or needs the next piece."""
        self._needs_piece = False
        while items > 0 and self.outcome == WHOLE and self.index < self._count and not self._needs_piece:
            items = self._pass_records(items) if self._field == _LENGTH else self._pass_fields(items)
        if self.outcome != WHOLE or self._needs_piece:
            return True
        if self.index < self._count:
            return False
        if self._position != self._end:
            self.outcome = BYTES_LEFT_IN_BATCH
        return True

    def _move(self, distance: i64) -> None:
        self._position -= distance
        self._record_end -= distance

    def _pass_records(self, items: i64) -> i64:  # noqa: C901
        """Passes up to `items` records, stops at one that has many headers or in which the piece ends, and returns the
        rest of `items`.
        """
        data = self._data
        end: i64 = self._end
        border: i64 = end - _LONGEST_VARINT if self._is_open else end - 2
        position: i64 = self._position
        record_end: i64 = position
        index: i64 = self.index
        stop: i64 = self._count if self._count - index < items else index + items
        outcome: i64 = WHOLE
        least: i64 = self.least
        most: i64 = self.most
        without_key: i64 = self.without_key
        out_of_sequence: i64 = self.out_of_sequence
        largest: i64 = self.largest << 1
        raw: i64
        long: i64
        delta: i64
        items -= stop - index
        while index < stop:
            if position > border:
                if self._is_open:
                    self._needs_piece = True
                    items += stop - index
                else:
                    outcome = TOO_FEW_RECORDS if position >= end else BAD_LENGTH
                break
            raw = data[position]
            if raw < 0x80:
                position += 1
            elif data[position + 1] < 0x80:
                raw = raw & 0x7F | data[position + 1] << 7
                position += 2
            else:
                long = _narrow_varint(data, position, end)
                if long == 0:
                    outcome = BAD_VARINT
                    break
                raw = long >> 3
                position += long & 7
            record_end = position + (raw >> 1)
            if raw > largest:
                largest = raw
            if raw < _SMALLEST_RECORD << 1 or raw & 1 != 0 or record_end > end:
                if self._is_open and raw >= _SMALLEST_RECORD << 1 and raw & 1 == 0:
                    self._field = _TIMESTAMP
                    self._record_end = record_end
                    items += stop - index
                else:
                    outcome = BAD_LENGTH
                break

            # The attributes are skipped: no release gives them a meaning.
            position += 1
            raw = data[position]
            if raw < 0x80:
                delta = (raw >> 1) ^ -(raw & 1)
                position += 1
            elif data[position + 1] < 0x80:
                raw = raw & 0x7F | data[position + 1] << 7
                delta = (raw >> 1) ^ -(raw & 1)
                position += 2
            else:
                long = varlong_size(data, position, record_end)
                if long < 0:
                    outcome = BAD_VARINT
                    break
                delta = varlong(data, position, long)
                position += long
            if index == 0:
                least = delta
                most = delta
            elif delta < least:
                least = delta
            elif delta > most:
                most = delta

            # The offset delta.
            if position + 1 >= record_end:
                outcome = FIELD_BEYOND_RECORD
                break
            raw = data[position]
            if raw < 0x80:
                position += 1
            elif data[position + 1] < 0x80:
                raw = raw & 0x7F | data[position + 1] << 7
                position += 2
            else:
                long = _narrow_varint(data, position, record_end)
                if long == 0:
                    outcome = BAD_VARINT
                    break
                raw = long >> 3
                position += long & 7
            if raw != index << 1:
                out_of_sequence += 1

            # The key.
            if position + 1 >= record_end:
                outcome = FIELD_BEYOND_RECORD
                break
            raw = data[position]
            if raw < 0x80:
                position += 1
            elif data[position + 1] < 0x80:
                raw = raw & 0x7F | data[position + 1] << 7
                position += 2
            else:
                long = _narrow_varint(data, position, record_end)
                if long == 0:
                    outcome = BAD_VARINT
                    break
                raw = long >> 3
                position += long & 7
            if raw & 1 == 0:
                position += raw >> 1
            elif raw == _NULL:
                without_key += 1
            else:
                outcome = BAD_NULL
                break

            # The value.
            if position + 1 >= record_end:
                outcome = FIELD_BEYOND_RECORD
                break
            raw = data[position]
            if raw < 0x80:
                position += 1
            elif data[position + 1] < 0x80:
                raw = raw & 0x7F | data[position + 1] << 7
                position += 2
            else:
                long = _narrow_varint(data, position, record_end)
                if long == 0:
                    outcome = BAD_VARINT
                    break
                raw = long >> 3
                position += long & 7
            if raw & 1 == 0:
                position += raw >> 1
            elif raw != _NULL:
                outcome = BAD_NULL
                break

            if position >= record_end:
                outcome = FIELD_BEYOND_RECORD
                break
            raw = data[position]
            if raw == 0:
                position += 1
            elif raw < _MANY_HEADERS:
                position += 1
                if raw & 1 != 0 or raw >> 1 > record_end - position:
                    outcome = BAD_HEADER_COUNT
                    break
                position = _walk_headers(data, position, record_end, raw >> 1)
                if position < 0:
                    outcome = -position
                    break
            else:
                position = self._begin_headers(position, record_end)
                if position < 0:
                    outcome = -position
                    break
                if self._headers_left > 0:
                    self._field = _HEADER_KEY
                    items += stop - index
                    break
            if position != record_end:
                outcome = BYTES_LEFT_IN_RECORD
                break
            index += 1
        self._position = position
        self.index = index
        self.least = least
        self.most = most
        self.without_key = without_key
        self.out_of_sequence = out_of_sequence
        self.largest = largest >> 1
        self.outcome = outcome
        return items

    def _begin_headers(self, position: i64, record_end: i64) -> i64:
        """Returns the position after the header count, which is at `position`; below 0: the negated outcome."""
        long: i64 = _narrow_varint(self._data, position, record_end)
        if long == 0:
            return -BAD_VARINT
        position += long & 7
        raw: i64 = long >> 3
        count: i64 = raw >> 1
        if raw & 1 != 0 or count > record_end - position:
            return -BAD_HEADER_COUNT
        self._record_end = record_end
        self._headers_left = count
        return position

    def _pass_fields(self, items: i64) -> i64:  # noqa: C901
        """Passes the fields of one record, and returns the rest of `items`. Every header is an item.

        If the record ends beyond the batch, that is its error, whatever its fields are.
        """
        data = self._data
        end: i64 = self._end
        position: i64 = self._position
        record_end: i64 = self._record_end
        field: i64 = self._field
        outcome: i64 = self._record_outcome
        raw: i64
        long: i64
        while items > 0 and field != _LENGTH:
            if record_end > end and (not self._is_open or field == _END or position + _LONGEST_FIELD > end):
                self._needs_piece = self._is_open
                if not self._is_open:
                    self.outcome = BAD_LENGTH
                break
            if field == _END:
                field = _LENGTH
                if outcome == WHOLE:
                    self.index += 1
                self.outcome = outcome
                break
            if field == _TIMESTAMP:
                long = varlong_size(data, position + 1, record_end)
                if long < 0:
                    outcome = BAD_VARINT
                else:
                    self._note_timestamp(varlong(data, position + 1, long))
                    position += 1 + long
                    field = _OFFSET
            elif field == _HEADER_KEY and record_end <= end:
                raw = self._headers_left if self._headers_left < items else items
                position = _walk_headers(data, position, record_end, raw)
                self._headers_left -= raw
                items -= raw
                if position < 0:
                    outcome = -position
                elif self._headers_left == 0:
                    field = _END
            elif position >= record_end or (field < _HEADER_COUNT and position + 1 >= record_end):
                outcome = FIELD_BEYOND_RECORD
            else:
                long = _narrow_varint(data, position, record_end)
                raw = long >> 3
                position += long & 7
                if long == 0:
                    outcome = BAD_VARINT
                elif field == _OFFSET:
                    if raw != self.index << 1:
                        self.out_of_sequence += 1
                    field = _KEY
                elif field == _HEADER_COUNT:
                    self._headers_left = raw >> 1
                    if raw & 1 != 0 or raw >> 1 > record_end - position:
                        outcome = BAD_HEADER_COUNT
                    field = _HEADER_KEY if raw > 0 else _END
                elif field == _HEADER_KEY:
                    if raw & 1 != 0:
                        outcome = BAD_HEADER_KEY
                    position += raw >> 1
                    field = _HEADER_VALUE
                else:
                    if raw & 1 == 0:
                        position += raw >> 1
                    elif raw != _NULL:
                        outcome = BAD_NULL
                    elif field == _KEY:
                        self.without_key += 1
                    if field != _HEADER_VALUE:
                        field += 1
                    elif position > record_end:
                        outcome = FIELD_BEYOND_RECORD
                    else:
                        items -= 1
                        self._headers_left -= 1
                        field = _HEADER_KEY if self._headers_left > 0 else _END
            if outcome != WHOLE:
                field = _END
            if field == _END:
                if outcome == WHOLE and position != record_end:
                    outcome = BYTES_LEFT_IN_RECORD
                position = record_end
        self._position = position
        self._field = field
        self._record_outcome = outcome
        return items

    def _note_timestamp(self, delta: i64) -> None:
        if self.index == 0:
            self.least = delta
            self.most = delta
        elif delta < self.least:
            self.least = delta
        elif delta > self.most:
            self.most = delta


class RefusedRecords(RecordPassage):
    """A search for the first `limit` records that break a topic's rules, among records that a walk has found WHOLE.

    `found` lists them as (index, whether a key is missing, timestamp delta). A record is refused if it has no key and
    `needs_key` is set, or if its timestamp delta is neither from `least` to `most` nor `exempt`; with `least` above
    `most`, all are refused. These must fit 64 bits.
    """

    def __init__(
        self,
        data: bytes,
        start: int,
        count: int,
        needs_key: bool,
        least: int,
        most: int,
        exempt: int,
        limit: int,
        is_open: bool = False,
    ) -> None:
        super().__init__(data, start, len(data), count, is_open)
        self.found: list[tuple[int, bool, int]] = []
        self._needs_key = needs_key
        self._least: i64 = least
        self._most: i64 = most
        self._exempt: i64 = exempt
        self._limit: i64 = limit

    @property
    def has_ended(self) -> bool:
        return self.index >= self._count or len(self.found) >= self._limit

    def take(self, items: i64) -> bool:
        """Checks up to `items` records; returns whether the search has ended, or needs the next piece."""
        data = self._data
        end: i64 = self._end
        border: i64 = end - _BEGINNING if self._is_open else end
        position: i64 = self._position
        index: i64 = self.index
        least: i64 = self._least
        most: i64 = self._most
        while index < self._count and items > 0 and position <= border and len(self.found) < self._limit:
            items -= 1
            packed: i64 = varint(data, position, end)
            position += packed & 7
            record_end: i64 = position + (packed >> 4)
            position += 1
            size: i64 = varlong_size(data, position, record_end)
            delta: i64 = varlong(data, position, size)
            position += size
            position += varint(data, position, record_end) & 7
            wants_key: bool = self._needs_key and (varint(data, position, record_end) >> 3) & 1 != 0
            if wants_key or ((delta < least or delta > most) and (delta != self._exempt or least > most)):
                self.found.append((int(index), wants_key, int(delta)))
            position = record_end
            index += 1
        self._position = position
        self.index = index
        return position > border or self.has_ended


def _walk_headers(data: bytes, position: i64, record_end: i64, count: i64) -> i64:
    """Returns the position after `count` headers; below 0: the negated outcome."""
    raw: i64
    long: i64
    while count > 0:
        long = _narrow_varint(data, position, record_end)
        if long != 0:
            raw = long >> 3
            if raw & 1 != 0:
                return -BAD_HEADER_KEY
            position += (long & 7) + (raw >> 1)
            long = _narrow_varint(data, position, record_end)
        if long == 0:
            return -FIELD_BEYOND_RECORD if position >= record_end else -BAD_VARINT
        raw = long >> 3
        position += long & 7
        if raw & 1 == 0:
            position += raw >> 1
        elif raw != _NULL:
            return -BAD_NULL
        if position > record_end:
            return -FIELD_BEYOND_RECORD
        count -= 1
    return position


def _narrow_varint(data: bytes, position: i64, end: i64) -> i64:
    """Reads a varint as `varint` does; returns 0 also if bits beyond the 32 are set."""
    long: i64 = varint(data, position, end)
    if long & 7 == 5 and data[position + 4] > _HIGHEST_BITS:
        return 0
    return long


def varint(data: bytes, position: i64, end: i64) -> i64:
    """Reads the varint at `position`: its 32 raw bits times 8, plus its size in bytes; 0 if truncated or too long."""
    raw: i64 = 0
    size: i64 = 0
    byte: i64
    while size < 5 and position + size < end:
        byte = data[position + size]
        raw |= (byte & 0x7F) << (7 * size)
        size += 1
        if byte < 0x80:
            return (raw & 0xFFFFFFFF) << 3 | size
    return 0


def varlong_size(data: bytes, position: i64, end: i64) -> i64:
    """Returns the size of the varlong at `position`; -1 if it is truncated or longer than ten bytes."""
    size: i64 = 0
    while size < 10:
        if position + size >= end:
            return -1
        size += 1
        if data[position + size - 1] < 0x80:
            return size
    return -1


def varlong(data: bytes, position: i64, size: i64) -> i64:
    """Returns the signed number in the varlong of `size` bytes at `position`.

    The last of 64 bits comes with the tenth byte and is added after halving, so that no value needs more than 63 bits.
    """
    raw: i64 = 0
    index: i64 = 0
    byte: i64
    while index < size and index < 9:
        byte = data[position + index]
        raw |= (byte & 0x7F) << (7 * index)
        index += 1
    half: i64 = raw >> 1
    if size == 10:
        byte = data[position + 9]
        if byte & 1 != 0:
            half += _BIT_62
    return half ^ -(raw & 1)
