"""`odradek dump-log`: the files of a log directory as text.

    files.py          segments, snapshots and checkpoints
    index.py          indexes, checked against their segment
    coordinators.py   the records of internal topics
    problems.py       what was found wrong

Callers: `odradek.cli`.
"""
