"""Compaction: of the records with one key only the last remains.

    candidates.py        what of a log may be cleaned
    manager.py           which log is cleaned when
    job.py, messages.py  what is sent to the cleaner process, and back
    worker.py            the process
    cleaner.py           one clean
    batches.py, walk.py, transactions.py   what happens to each batch and record
    cleaned_segment.py   the segment that it writes
    swap.py              replaces the old segments

Callers: `broker/cleaning`.
"""
