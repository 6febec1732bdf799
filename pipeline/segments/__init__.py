"""The Spark data source "odradek": reads topics from a broker's log directories, without the broker.

    spark.read.format("odradek").option("topic", "orders").load("/var/lib/odradek")

It reads the files that Apache Kafka and Odradek write (message format 2, KIP-98), of a running broker or of a copy. The
rows and the schema are those of Spark's Kafka connector; `options.py` describes the options.

Files read in a log directory
    TOPIC-PARTITION/BASE.log        batches: a 61 byte header, then records, compressed or not (`batches.py`)
    TOPIC-PARTITION/BASE.index      offset -> position, sparse: where a range starts, where a segment is split
    TOPIC-PARTITION/BASE.txnindex   the aborted transactions whose markers are in that segment
    TOPIC-PARTITION/BASE.snapshot   the producers at an offset: which transactions were open there
    log-start-offset-checkpoint     the offsets below which DeleteRecords has deleted all (up to a minute old)

`planning.py` examines the files once, in one process, and fixes the offsets, which makes a read consistent. A task
(`ranges.py`) is a range of one segment. `reading.py` opens the segment, even if it was renamed in the meantime, and
splits it into blocks. `records.py` decodes a block with numpy, some tens of thousands of records at once. `columns.py`
converts it to an Arrow batch. `odradek.protocol` decodes headers, checksums, codecs and transaction markers, as in the
broker; nothing else of the broker is imported.

Guarantees
(A) Each record of [start, end) is returned once, with the offset, timestamp and bytes that a consumer would get.
(B) The end is fixed when the query is planned: the log end, or with read_committed the last stable offset, i.e. the
    first record of the oldest open transaction. The log end stands in for the high watermark: in a cluster the last
    records may not be on all replicas yet. `replication-offset-checkpoint` is too old for this purpose.
(C) With read_committed, records of aborted transactions are skipped. Control batches are never returned.
(D) The log ends before the first batch that is truncated or has a wrong checksum, if no complete batch follows in the
    last segment: it is the torn tail of a crash, or a batch that is being written. Anywhere else this is an error that
    names file and position, which the broker would have to repair.
(E) Gaps left by compaction are skipped.
(F) A planned segment that was renamed (`.deleted`, a deleted topic's directory) is read while it exists, which is for
    file.delete.delay.ms. A segment that the cleaner replaced is read in its new form, as a consumer would.
(G) A segment that no longer exists is an error with the lost offsets; with failOnDataLoss=false it is logged as a
    warning, and the rest is read.
(H) Formats 0 and 1, unknown codecs, streams that Kafka would not decompress (truncated, damaged, linked blocks of lz4)
    or that inflate to more than 1 GiB are errors that name file, position and offset, and how to read the records
    around them.
(I) No file is written, locked or removed.

The checksum does not cover the base offset of a batch. A base offset that does not ascend counts as damage, but one
that is too high looks like a gap.
"""
