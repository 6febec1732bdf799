"""The log of one partition.

    log_state.py                     the offsets and their invariants. Only it writes them
    log.py                           the parts of a log, and what needs several of them
    append.py, follow.py             appends as leader, and as follower
    writer.py, write_ahead.py        writes at the end, rolls, and takes back what failed
    read.py, search.py               by offset, and by time
    positions.py, segments.py, producers.py, leader_epochs.py, folder.py   what a log consists of
    flushing.py                      makes it durable
    start_offset.py, retention.py    its start moves
    truncation.py                    its end moves back
    recovery.py, leftovers.py        opens it after a crash
    closing.py                       closes it
    frozen.py                        writes it elsewhere as it is at one instant

Callers: `directories`, `cleaner`, the replicas of the broker; of `frozen.py`, the snapshots of `odradek.testing`.
"""
