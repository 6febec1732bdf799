"""The Spark data source "odradek": topics read from a broker's log directories, without the broker.

    spark.read.format("odradek").option("topic", "orders").load("/var/lib/odradek")

It reads the files that Apache Kafka and Odradek write (message format 2, KIP-98), so it may run beside a live broker,
or on a copy. The rows and the schema are those of Spark's Kafka connector; `options.py` has the options.

What it reads of a log directory
    TOPIC-PARTITION/BASE.log        batches: a 61 byte header, then records, compressed or not (`batches.py`)
    TOPIC-PARTITION/BASE.index      offset -> position, sparse: where a range begins, where a segment is split
    TOPIC-PARTITION/BASE.txnindex   the aborted transactions whose markers are in that segment
    TOPIC-PARTITION/BASE.snapshot   the producers known at an offset: which transactions were open there
    log-start-offset-checkpoint     below which DeleteRecords has removed everything (up to a minute old)

How: `planning.py` looks at the files once, in one process, and decides on offsets; this is what makes a read
consistent. A task (`ranges.py`) is a range of one segment. `reading.py` opens it wherever it has gone to meanwhile and
cuts it into blocks; `records.py` decodes a block with numpy, some tens of thousands of records at once; `columns.py`
makes it an Arrow batch. Headers, checksums, codecs and transaction markers are read by `odradek.protocol`, as the
broker reads them; nothing else of the broker is imported.

Promises
(A) Each record of [start, end) comes once, with the offset, timestamp and bytes that a consumer would get.
(B) The end is fixed when the query is planned: the log end, or under read_committed the last stable offset, the
    first record of the oldest open transaction. The log end is taken for the high watermark: in a cluster the last
    records may not be on all replicas yet. `replication-offset-checkpoint` is too old to tell.
(C) Under read_committed records of aborted transactions are left out. Control batches never come.
(D) The log ends before the first batch that is cut, or whose checksum is wrong, if nothing whole follows in the last
    segment: the torn tail of a crash, or a batch that is just being written. Anywhere else this is an error that
    names file and position: the broker would have to mend it.
(E) Gaps that compaction left are passed over.
(F) A segment that was planned and has been renamed (`.deleted`, a deleted topic's directory) is read as long as it is
    there, which is file.delete.delay.ms. One that the cleaner replaced is read in its new form, as a consumer would.
(G) A segment that is gone for good: an error with the offsets, or with failOnDataLoss=false a warning and the rest.
(H) Formats 0 and 1, unknown codecs, streams that do not inflate as Kafka inflates them (cut, damaged, linked blocks of
    lz4) or inflate to more than 1 GiB: errors that name file, position and offset, and how to read what is around.
(I) No file is written, locked or removed.

What the checksum does not cover is the base offset of a batch: one that does not ascend is damage too, but a higher
one looks like a gap.
"""
