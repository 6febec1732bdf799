"""One segment of a log: a file of batches with its indexes.

    segment.py             appends, finds, truncates
    index.py               offset -> position, and time -> offset: sparse
    transaction_index.py   the aborted transactions that ended in it
    batch_scan.py          walks over the batches by their headers
    tail.py                the most recent batches in memory; recent_batches.py: their positions
    segment_cache.py       limits open files and memory of all segments

Callers: `log`, `cleaner`, `dump`.
"""
