"""Transactions in random runs of a log (test_random_crashes.py). After every step a read_committed consumer gets the
committed records, in order, and nothing else; the last stable offset is the start of the oldest open transaction.
"""

import random
from collections.abc import Callable, Iterator

import pytest

from odradek.protocol.batch_header import BatchHeader
from odradek.protocol.control_records import ControlType, read_control_type
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.record_validation import AppendOrigin
from odradek.protocol.records import build_end_transaction_marker, iter_batches, read_batch_header, read_records
from tests.storage.small_logs import NOW, bytes_of, headers_of, idempotent
from tests.storage.test_random_crashes import SEEDS, STEPS, Run

TRANSACTIONAL = (3, 4, 5)


class TransactionalRun(Run):
    """A Run with three transactional producers."""

    # ---- steps

    def append_in_transaction(self) -> None:
        producer_id = self.random.choice(TRANSACTIONAL)
        known = self.log.producers.state.producers.get(producer_id)
        sequence = known.last_sequence + 1 if known is not None else 0
        values = [b"t" * self.random.randrange(60) for _ in range(self.random.randrange(1, 4))]
        timestamp = NOW + self.random.randrange(1000)
        self.store(idempotent(sequence, *values, producer_id=producer_id, timestamp=timestamp, is_transactional=True))

    def end_transaction(self) -> None:
        marker = build_end_transaction_marker(
            self.random.choice([ControlType.COMMIT, ControlType.ABORT]),
            timestamp=NOW,
            producer_id=self.random.choice(TRANSACTIONAL),
            producer_epoch=0,
            coordinator_epoch=1,
        )
        self.store(marker, AppendOrigin.COORDINATOR)

    def store(self, data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        info = self.log.append_as_leader(data, 0, origin=origin)
        self.log.update_high_watermark(self.log.state.log_end_offset)
        stored = bytes_of(self.log.reader.read(info.first_offset, 1))
        self.model.batches.append((info.first_offset, info.last_offset, stored))

    def mark_as_a_zombie(self) -> None:
        """A marker of a coordinator that has been replaced."""
        known = self.log.producers.state.producers
        marked = [producer_id for producer_id in TRANSACTIONAL if producer_id in known]
        marked = [producer_id for producer_id in marked if known[producer_id].coordinator_epoch == 1]
        if marked:
            marker = build_end_transaction_marker(
                ControlType.COMMIT, timestamp=NOW, producer_id=marked[0], producer_epoch=0, coordinator_epoch=0
            )
            with pytest.raises(ProtocolError) as error:
                self.store(marker, AppendOrigin.COORDINATOR)
            assert error.value.code == ErrorCode.TRANSACTION_COORDINATOR_FENCED

    def append_again(self) -> None:
        if any(header.producer_id in TRANSACTIONAL for header in headers_of(self.log)[-1:]):
            return
        if [header for header in headers_of(self.log) if header.producer_id > 0][-1:] == []:
            return
        if [header for header in headers_of(self.log) if header.producer_id > 0][-1].producer_id not in TRANSACTIONAL:
            super().append_again()

    def learn_sequences(self) -> None:
        kept = self.model.batches
        self.model.batches = [entry for entry in kept if read_batch_header(entry[2]).producer_id not in TRANSACTIONAL]
        super().learn_sequences()
        self.model.batches = kept

    # ---- invariants

    def decided(self) -> tuple[list[bool | None], dict[int, list[int]]]:
        """Returns for each batch whether it is committed (None: its transaction is open), and each producer's open
        batches.
        """
        outcomes: list[bool | None] = []
        pending: dict[int, list[int]] = {}
        for slot, (_, _, data) in enumerate(self.model.batches):
            header = read_batch_header(data)
            if header.is_control:
                outcomes.append(False)
                committed = control_type_of(data, 0, header) is ControlType.COMMIT
                for earlier in pending.pop(header.producer_id, ()):
                    outcomes[earlier] = committed
            elif header.is_transactional:
                outcomes.append(None)
                pending.setdefault(header.producer_id, []).append(slot)
            else:
                outcomes.append(True)
        return outcomes, pending

    def check(self) -> None:
        super().check()
        outcomes, pending = self.decided()
        self.check_last_stable_offset(pending)
        stable = self.log.last_stable_offset
        offset = self.random.randint(self.model.start, stable)
        expected = [
            base
            for (base, last, _), committed in zip(self.model.batches, outcomes, strict=True)
            if committed and offset <= last < stable
        ]
        assert list(self.consume(offset)) == expected

    def check_last_stable_offset(self, pending: dict[int, list[int]]) -> None:
        batches, start = self.model.batches, self.model.start
        firsts = [batches[slots[0]][0] for slots in pending.values()]
        remaining = [
            base for slots in pending.values() for base, last, _ in (batches[s] for s in slots) if last >= start
        ]
        stable = self.log.last_stable_offset
        if all(first >= start for first in firsts):
            assert stable == min(firsts, default=self.model.end)
        else:  # if the start of a transaction was deleted, the result depends on whether the producer state was rebuilt
            assert start <= stable <= max(min(remaining, default=self.model.end), start)
        for producer_id in TRANSACTIONAL:
            if producer_id not in pending:
                assert not self.log.producers.state.has_ongoing_transaction(producer_id)

    def consume(self, offset: int) -> Iterator[int]:
        """Returns the base offsets of the batches that a read_committed consumer passes to its application."""
        while offset < self.log.last_stable_offset:
            data = self.log.reader.read(offset, 500, upper=self.log.last_stable_offset_metadata)
            aborted = sorted(self.log.reader.aborted_transactions(data), key=lambda entry: entry.first_offset)
            filtered: set[int] = set()
            records = bytes_of(data)
            for position, header in iter_batches(records):
                while aborted and aborted[0].first_offset <= header.last_offset:
                    filtered.add(aborted.pop(0).producer_id)
                if header.is_control:
                    if control_type_of(records, position, header) is ControlType.ABORT:
                        filtered.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in filtered):
                    yield header.base_offset
                offset = header.next_offset


def control_type_of(data: bytes, position: int, header: BatchHeader) -> ControlType:
    return read_control_type(read_records(data, position, header)[0].key)


WEIGHTS: dict[Callable[[TransactionalRun], None], int] = {
    TransactionalRun.append_in_transaction: 40,
    TransactionalRun.end_transaction: 15,
    TransactionalRun.mark_as_a_zombie: 2,
    TransactionalRun.append: 10,
    TransactionalRun.append_again: 2,
    TransactionalRun.flush: 6,
    TransactionalRun.flush_of_the_past: 4,
    TransactionalRun.background: 6,
    TransactionalRun.delete_records: 3,
    TransactionalRun.truncate: 4,
    TransactionalRun.restart: 3,
    TransactionalRun.crash: 5,
}


@pytest.mark.soak("1,200 seeds", minutes=1)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_read_committed_consumer_always_sees_exactly_the_committed_records(seed: int) -> None:
    run = TransactionalRun(seed)
    source = random.Random(seed + 1)
    for step in source.choices(list(WEIGHTS), list(WEIGHTS.values()), k=STEPS):
        step(run)
        run.check()
    run.manager.release()
