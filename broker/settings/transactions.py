"""Broker settings of producers' state and of transactions."""

from __future__ import annotations

from odradek.broker.settings.rules import AtLeast
from odradek.broker.settings.setting import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT, Setting

# fmt: off
TRANSACTIONS_SETTINGS = (
    Setting("producer.id.expiration.check.interval.ms", INT, 600000, LOW, valid=AtLeast(1), takes_effect=True,
            internal=True,
            doc="How often idle producers are looked for."),
    Setting("producer.id.expiration.ms", INT, 86400000, LOW, valid=AtLeast(1), takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="After this long without a batch a partition forgets a producer's sequence numbers."),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10000, LOW, valid=AtLeast(1),
            takes_effect=True,
            doc="How often transactions past their time-out are looked for."),
    Setting("transaction.max.timeout.ms", INT, 900000, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="The longest time-out that a transactional producer may ask for."),
    Setting("transaction.partition.verification.enable", BOOLEAN, True, LOW, takes_effect=True,
            update_mode=CLUSTER_WIDE,
            doc="Whether a partition makes sure, before it takes a transactional batch, that the transaction "
                "knows of it."),
    Setting("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3600000, LOW, valid=AtLeast(1),
            takes_effect=True,
            doc="How often unused transactional ids are looked for."),
    Setting("transaction.state.log.load.buffer.size", INT, 5242880, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="Bytes read at a time when a transaction coordinator loads its partitions."),
    Setting("transaction.state.log.min.isr", INT, 2, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="In-sync replicas that __transaction_state needs to take writes."),
    Setting("transaction.state.log.num.partitions", INT, 50, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="Partitions of __transaction_state when it is created."),
    Setting("transaction.state.log.replication.factor", SHORT, 3, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="Replicas of __transaction_state when it is created."),
    Setting("transaction.state.log.segment.bytes", INT, 104857600, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="Segment size of __transaction_state."),
    Setting("transactional.id.expiration.ms", INT, 604800000, HIGH, valid=AtLeast(1), takes_effect=True,
            doc="After this long without use a transactional id is forgotten."),
)
# fmt: on
