"""Broker settings of producer state and transactions."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast
from odradek.broker.settings.setting import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT, Setting

# fmt: off
TRANSACTIONS_SETTINGS = (
    Setting("producer.id.expiration.check.interval.ms", INT, 600000, LOW, valid=AtLeast(1), takes_effect=True,
            internal=True,
            doc="How often idle producers are expired."),
    Setting("producer.id.expiration.ms", INT, 86400000, LOW, valid=AtLeast(1), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="How long a partition keeps the sequence numbers of a producer that sends no batches."),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, LOW, valid=AtLeast(1),
            takes_effect=True,
            doc="How often transactions that have timed out are aborted."),
    Setting("transaction.max.timeout.ms", INT, 900000, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="The maximum timeout that a transactional producer may request."),
    Setting("transaction.partition.verification.enable", BOOLEAN, True, LOW, takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="Whether a partition verifies, before it accepts a transactional batch, that it was added to the "
                "transaction."),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3600000, LOW, valid=AtLeast(1),
            takes_effect=True,
            doc="How often unused transactional ids are expired."),
    Setting("transaction.state.log.load.buffer.size", INT, 5242880, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="The number of bytes read at a time when a transaction coordinator loads its partitions."),
    Setting("transaction.state.log.min.isr", INT, 2, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="The minimum number of in-sync replicas for __transaction_state to accept writes."),
    Setting("transaction.state.log.num.partitions", INT, 50, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="The number of partitions with which __transaction_state is created."),
    Setting("transaction.state.log.replication.factor", SHORT, 3, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="The replication factor with which __transaction_state is created."),
    Setting("transaction.state.log.segment.bytes", INT, 104857600, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="The segment size of __transaction_state."),
    Setting("transactional.id.expiration.ms", INT, 604800000, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="How long an unused transactional id is kept."),
)
# fmt: on
