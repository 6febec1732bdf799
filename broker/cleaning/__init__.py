"""Compaction at work: the broker's side of `odradek.storage.cleaner`.

    log_cleaner.py       `log.cleaner.threads` cleaners, each of which cleans one log at a time
    cleaner_process.py   the separate process that does the reading and writing

Callers: `server.py`, and the periodic work.
"""
