"""All logs of a broker, in the directories of log.dirs.

    log_manager.py       opens, creates, flushes, deletes and closes them
    registry.py          which logs there are, and where
    log_directory.py     one directory: its lock, its checkpoints, its folders
    meta_properties.py   which broker and cluster it belongs to
    log_creation.py      creates a log
    log_checkpoints.py   the offsets of all logs of a directory
    bulk_truncation.py   truncates many logs together
    log_moves.py         moves between directories; future_replica.py: one of them
    shutdown.py          closes all logs

Callers: the replica manager, `server.py`, `cleaner`.
"""
