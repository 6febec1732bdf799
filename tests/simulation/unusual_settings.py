"""Which seeds have settings that others do not have, and which: each of them in some of the seeds.

commit timeout    Appends of the coordinator of groups give up before a follower that hears nothing leaves the in-sync
                  replicas. What is in the log may then differ from what its clients were told
flush time        Logs are flushed by time, also between two rolls
flush records     Logs are flushed after some records, before these are acknowledged; in seeds in which they are not
                  flushed after each
roll time         Segments roll by time, also those that are nearly empty
slow cleaner      A cleaner may read and write so little in a second that the log changes under a clean
slow moves        So may a log that moves from one directory to the other, while it is copied
leader balance    Leaderships return to the preferred replicas often
few sessions      There are fewer slots for fetch sessions than followers and consumers, so some of them name all
                  partitions in each fetch
small fetches     A follower gets a part of what it lacks: the first batch, or up to the end of a batch
small memory      A cleaner knows only the keys of a part of the log
compression       Batches of the group coordinator, and of the keyed producer, are compressed
no handing over   A broker that stops leads to its end
short turns       Few requests that wait are tried at a time, so that the list of a partition takes several turns
purges            Requests that wait are removed from the lists of what they wait for soon after they are answered
nothing kept      What is committed of the topic `clicks` is deleted at once. A replica that leads uncleanly may end
                  before all others begin
feature changes   The levels of features are lowered and raised while groups and transactions are at work
compaction lags   Young records are not compacted, or old ones must be

What is drawn here comes from a source of its own, as in security.py.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from odradek.protocol.records import Compression

COMMIT_TIMEOUTS_MS = (400, 1500)
FEW_REQUESTS = (1, 10)
FEW_TRIES = (1, 4)
FLUSH_RECORDS = (2, 6)
FLUSH_TIMES_MS = (200, 2000)
ROLL_TIMES_MS = (1000, 5000)
CLEANER_BYTES_PER_S = (2_000, 20_000)
FETCH_BYTES = (200, 3000)
FETCH_SESSIONS = (1, 4)
BALANCE_S = (2, 8)
FEW_KEYS = {"log.cleaner.dedupe.buffer.size": "2097152", "log.cleaner.io.buffer.load.factor": "0.0006"}
"""About eight."""
MOVED_BYTES_PER_S = (30_000, 100_000)
CODECS = (Compression.NONE, Compression.GZIP, Compression.SNAPPY)
FEATURE_CHANGES = 0.25
KEEPS_NOTHING = {"retention.bytes": "0"}
LAGS: tuple[dict[str, str], ...] = (
    {},
    {"min.compaction.lag.ms": "1500"},
    {"max.compaction.lag.ms": "1500", "min.cleanable.dirty.ratio": "0.9"},
)


class UnusualSettings(NamedTuple):
    """`brokers`: settings of all brokers. `balances`: of the compacted topic. `codec`: of the batches of the producer
    that writes to it. `clicks`: of the topic that may be led uncleanly. `tries`: how many requests that wait are
    tried in one turn of the loop; None: as many as usual.
    `changes_features`: see feature_changes.py."""

    brokers: dict[str, str]
    balances: dict[str, str]
    codec: int
    clicks: dict[str, str]
    tries: int | None
    changes_features: bool


def unusual_settings_of(seed: int) -> UnusualSettings:
    """Draws the settings of a seed."""
    source = Random(f"{seed} unusual settings")
    brokers: dict[str, str] = {}
    for name, (least, most), share in (
        ("offsets.commit.timeout.ms", COMMIT_TIMEOUTS_MS, 0.4),
        ("log.flush.interval.ms", FLUSH_TIMES_MS, 0.4),
        ("log.flush.interval.messages", FLUSH_RECORDS, 0.3),
        ("producer.purgatory.purge.interval.requests", FEW_REQUESTS, 0.5),
        ("fetch.purgatory.purge.interval.requests", FEW_REQUESTS, 0.5),
        ("replica.fetch.max.bytes", FETCH_BYTES, 0.4),
        ("replica.fetch.response.max.bytes", FETCH_BYTES, 0.3),
        ("leader.imbalance.check.interval.seconds", BALANCE_S, 0.4),
        ("max.incremental.fetch.session.cache.slots", FETCH_SESSIONS, 0.4),
        ("log.roll.ms", ROLL_TIMES_MS, 0.3),
        ("replica.alter.log.dirs.io.max.bytes.per.second", MOVED_BYTES_PER_S, 0.5),
        ("log.cleaner.io.max.bytes.per.second", CLEANER_BYTES_PER_S, 0.3),
    ):
        is_chosen, value = source.random() < share, source.randint(least, most)
        if is_chosen:
            brokers[name] = str(value)
    if source.random() < 0.3:
        brokers |= FEW_KEYS
    brokers["offsets.topic.compression.codec"] = str(source.choice(CODECS))
    lag, codec = source.choice(LAGS), source.choice(CODECS)
    clicks = KEEPS_NOTHING if source.random() < 0.3 else {}
    if source.random() < 0.3:
        brokers["controlled.shutdown.enable"] = "false"
    tries = source.randint(*FEW_TRIES) if source.random() < 0.4 else None
    return UnusualSettings(brokers, lag, codec, clicks, tries, source.random() < FEATURE_CHANGES)
