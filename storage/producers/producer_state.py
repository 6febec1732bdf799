"""The producers of one partition: sequences, epochs, open transactions (Kafka's ProducerStateManager; KIP-98, KIP-360,
KIP-890).

A leader's append checks before the write and updates the state after it, so a failed write needs no rollback:

(A) `find_duplicate`: the batch repeats one of the producer's last five; the response has the offset of the original;
(B) `check_data_batch` / `check_marker`: raise if epoch or sequence are invalid (codes 47, 45, 48, 52);
(C) `apply_data_batch` / `apply_marker`: the batch is in the log. A replay of the log calls these without (A) and (B).

A transaction is *ongoing* from its first batch to its marker, then *unreplicated* until the high watermark has passed
the marker. The smallest first offset of both kinds limits what read_committed consumers see.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.protocol.batch_header import MAX_INT32, NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader
from odradek.protocol.control_records import Marker
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.storage.producers.producer_state_entry import NO_OFFSET, BatchMetadata, ProducerStateEntry
from odradek.storage.producers.refused_batches import RefusedBatches
from odradek.storage.segment.transaction_index import AbortedTransaction

PRODUCER_ID_EXPIRATION_MS = 86400000
EPOCH_PER_TRANSACTION = 2
"""The first version of transactions whose markers bear the epoch after that of the transaction."""
MAX_INT16 = 2**15 - 1


class TransactionMetadata:
    """An ongoing or unreplicated transaction. `last_offset` is the offset of its marker, -1 while it is ongoing."""

    __slots__ = ("first_offset", "last_offset", "producer_id")

    def __init__(self, producer_id: int, first_offset: int) -> None:
        self.producer_id = producer_id
        self.first_offset = first_offset
        self.last_offset = NO_OFFSET


class ProducerState:
    """All producers of a partition. Batches below `map_end_offset` have been applied."""

    __slots__ = ("expiration_ms", "map_end_offset", "ongoing", "producers", "refused", "unreplicated")

    def __init__(self, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS) -> None:
        self.expiration_ms = expiration_ms
        self.map_end_offset = 0
        self.producers: dict[int, ProducerStateEntry] = {}
        self.ongoing: dict[int, TransactionMetadata] = {}  # by first offset, ascending
        self.unreplicated: dict[int, TransactionMetadata] = {}
        self.refused = RefusedBatches()

    # ---- checks before an append

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        entry = self.producers.get(header.producer_id)
        return entry.find_duplicate(header) if entry is not None else None

    def has_ongoing_transaction(self, producer_id: int) -> bool:
        """Whether the producer has a transaction in this partition that waits for its marker."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.current_transaction_first_offset >= 0

    def would_begin_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a batch of the producer begins a transaction here, unless it is refused because of its old epoch."""
        entry = self.producers.get(producer_id)
        if entry is None or producer_epoch > entry.producer_epoch:
            return True
        return producer_epoch == entry.producer_epoch and entry.current_transaction_first_offset < 0

    def knows_newer_epoch(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a batch of the producer is refused because of its epoch."""
        entry = self.producers.get(producer_id)
        return entry is not None and producer_epoch < entry.producer_epoch

    def check_data_batch(self, header: BatchHeader, *, sequences: bool = True) -> None:
        """Raises INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER or INVALID_TXN_STATE.

        An unknown producer may start with any sequence, because its state may have expired.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            self._check_epoch(header, NO_PRODUCER_EPOCH)
            return
        self._check_epoch(header, entry.producer_epoch)
        if sequences:
            _check_sequence(header, entry)
        if entry.current_transaction_first_offset >= 0 and not header.is_transactional:
            raise ProtocolError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction and may write only within it",
            )

    def check_marker(self, header: BatchHeader, coordinator_epoch: int, transaction_version: int = 0) -> None:
        """Raises INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.

        A marker of version 2 bears the epoch after that of its transaction. One with the producer's current epoch
        belongs to an earlier transaction: it may be repeated while none is open, and ends none. Markers of other
        versions have the epoch of their transaction, or the next one.
        """
        entry = self.producers.get(header.producer_id)
        self._check_epoch(header, entry.producer_epoch if entry is not None else NO_PRODUCER_EPOCH)
        if transaction_version >= EPOCH_PER_TRANSACTION and entry is not None:
            _check_is_not_late(header, entry)
        if entry is not None and entry.coordinator_epoch > coordinator_epoch:
            raise ProtocolError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"the coordinator epoch of {header.producer_id} is {entry.coordinator_epoch}, not {coordinator_epoch}",
            )

    @staticmethod
    def _check_epoch(header: BatchHeader, known_epoch: int) -> None:
        if header.producer_epoch < known_epoch:
            raise ProtocolError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {known_epoch}, the batch has {header.producer_epoch}",
            )

    # ---- applying batches of the log

    def apply(self, header: BatchHeader, marker: Marker | None) -> AbortedTransaction | None:
        """Applies a producer's batch: data, or a control batch with this marker, which may be None. Returns the
        transaction that the batch aborts, or None.
        """
        if not header.is_control:
            self.apply_data_batch(header)
        elif marker is not None:
            return self.apply_marker(header, marker.aborted, marker.coordinator_epoch, marker.timestamp)
        return None

    def apply_data_batch(self, header: BatchHeader) -> None:
        producer_id = header.producer_id
        entry = self.producers.get(producer_id)
        if entry is None:
            entry = self.producers[producer_id] = ProducerStateEntry(producer_id)
        delta = header.last_offset_delta
        base_offset = header.base_offset
        entry.add_batch(
            header.producer_epoch, BatchMetadata(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
        )
        if header.is_transactional and entry.current_transaction_first_offset < 0:
            entry.current_transaction_first_offset = base_offset
            self.ongoing[base_offset] = TransactionMetadata(producer_id, base_offset)

    def apply_marker(
        self, header: BatchHeader, aborted: bool, coordinator_epoch: int, timestamp: int
    ) -> AbortedTransaction | None:
        """Ends the producer's open transaction, if any. Returns its transaction index entry if it was aborted."""
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = self.producers[header.producer_id] = ProducerStateEntry(header.producer_id)
        first_offset = entry.current_transaction_first_offset
        entry.enter_epoch(header.producer_epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.current_transaction_first_offset = NO_OFFSET
        entry.last_timestamp = timestamp
        transaction = self.ongoing.pop(first_offset, None)
        if transaction is None:
            return None
        transaction.last_offset = header.base_offset
        self.unreplicated[first_offset] = transaction
        return self._aborted(transaction, header) if aborted else None

    def aborted_by(self, header: BatchHeader) -> AbortedTransaction | None:
        """Returns the entry for the transaction index if this batch is an ABORT; None if it ends no transaction."""
        entry = self.producers.get(header.producer_id)
        transaction = self.ongoing.get(entry.current_transaction_first_offset) if entry is not None else None
        return self._aborted(transaction, header) if transaction is not None else None

    def _aborted(self, transaction: TransactionMetadata, header: BatchHeader) -> AbortedTransaction:
        still_open = next((first for first, other in self.ongoing.items() if other is not transaction), None)
        last_stable_offset = header.base_offset + 1 if still_open is None else still_open
        return AbortedTransaction(
            transaction.producer_id, transaction.first_offset, header.base_offset, last_stable_offset
        )

    @property
    def first_unstable_offset(self) -> int | None:
        ongoing = next(iter(self.ongoing), None)
        unreplicated = min(self.unreplicated) if self.unreplicated else None
        if ongoing is None or unreplicated is None:
            return unreplicated if ongoing is None else ongoing
        return min(ongoing, unreplicated)

    def has_late_transaction(self, before_ms: int) -> bool:
        """Whether the last record of the oldest open transaction is older than `before_ms`, by record timestamps
        (Kafka's hasLateTransaction).
        """
        oldest = next(iter(self.ongoing.values()), None)
        return oldest is not None and 0 < self.producers[oldest.producer_id].last_timestamp < before_ms

    def forget_replicated(self, high_watermark: int) -> None:
        """Drops transactions whose marker lies below the high watermark, that is, on all in-sync replicas."""
        for first_offset, transaction in list(self.unreplicated.items()):
            if transaction.last_offset < high_watermark:
                del self.unreplicated[first_offset]

    # ---- copies

    def branch(self, producer_ids: Iterable[int]) -> ProducerState:
        """Returns a copy with these producers and all ongoing transactions, to apply batches to that may not reach the
        log.
        """
        copy = ProducerState(self.expiration_ms)
        copy.map_end_offset = self.map_end_offset
        for producer_id in producer_ids:
            entry = self.producers.get(producer_id)
            if entry is not None:
                copy.producers[producer_id] = entry.copy()
        for first_offset, transaction in self.ongoing.items():
            copy.ongoing[first_offset] = TransactionMetadata(transaction.producer_id, first_offset)
        return copy

    def go_back_to(self, earlier: ProducerState) -> None:
        """Replaces the content with the state at an earlier offset, after a truncation to that offset.

        A batch that both know is kept with those before it: `earlier` may come from a snapshot, which has one batch per
        producer. So are transactions that are complete but not replicated.
        """
        earlier.remember_batches(self)
        unreplicated = {
            first_offset: transaction
            for first_offset, transaction in self.unreplicated.items()
            if transaction.last_offset < earlier.map_end_offset
        }
        self.producers = earlier.producers
        self.ongoing = earlier.ongoing
        self.unreplicated = {**unreplicated, **earlier.unreplicated}
        self.map_end_offset = earlier.map_end_offset

    # ---- loading and expiring

    def clear(self) -> None:
        self.producers.clear()
        self.ongoing.clear()
        self.unreplicated.clear()

    def load(self, entries: list[ProducerStateEntry], now_ms: int) -> None:
        """Loads the entries of a snapshot, except for producers that have expired since."""
        for entry in entries:
            if not self._is_expired(entry, now_ms):
                self.producers[entry.producer_id] = entry
        open_transactions = [entry for entry in self.producers.values() if entry.current_transaction_first_offset >= 0]
        for entry in sorted(open_transactions, key=lambda entry: entry.current_transaction_first_offset):
            first_offset = entry.current_transaction_first_offset
            self.ongoing[first_offset] = TransactionMetadata(entry.producer_id, first_offset)

    def remember_batches(self, recovered: ProducerState) -> None:
        """Copies the last five batches of each producer from a state that has read them from the log.

        A snapshot has one batch per producer, but a client repeats all requests that were in flight when the broker was
        killed. Kafka appends at most one unanswered request of a connection.
        """
        for producer_id, entry in self.producers.items():
            known = recovered.producers.get(producer_id)
            if known is None or known.producer_epoch != entry.producer_epoch:
                continue
            if known.batches[-1:] == entry.batches[-1:]:
                entry.batches = known.batches

    def remove_expired(self, now_ms: int) -> int:
        """Drops producers without an open transaction whose last batch is too old; returns how many."""
        expired = [entry.producer_id for entry in self.producers.values() if self._is_expired(entry, now_ms)]
        for producer_id in expired:
            del self.producers[producer_id]
        self.refused.remove_expired(now_ms, self.expiration_ms)
        return len(expired)

    def _is_expired(self, entry: ProducerStateEntry, now_ms: int) -> bool:
        return entry.current_transaction_first_offset < 0 and now_ms - entry.last_timestamp >= self.expiration_ms


def _check_is_not_late(header: BatchHeader, entry: ProducerStateEntry) -> None:
    """The largest epoch, in which no client should be, may end its own transaction."""
    epoch = entry.producer_epoch
    if header.producer_epoch == epoch < MAX_INT16 and entry.current_transaction_first_offset >= 0:
        raise ProtocolError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} has begun another transaction with epoch {epoch}, that of the marker",
        )


def _check_sequence(header: BatchHeader, entry: ProducerStateEntry) -> None:
    first = header.base_sequence
    if header.producer_epoch != entry.producer_epoch:
        if first != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
            raise ProtocolError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} starts epoch {header.producer_epoch} with sequence {first}, not 0",
            )
        return
    last = entry.batches[-1].last_sequence if entry.batches else NO_SEQUENCE
    if entry.producer_epoch == NO_PRODUCER_EPOCH or first == last + 1 or (first == 0 and last == MAX_INT32):
        return
    raise ProtocolError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} is at sequence {last}, but the batch starts with {first}",
    )
