"""The state of one partition on this broker, and who waits for a change of it.

    partition.py             leader or follower, leader epoch, high watermark
    isr.py                   the in-sync replicas: confirmed by the controller, and proposed
    remote_replica.py        what the leader knows of one follower
    replication.py           what all partitions share: the clock, the way to the controller
    hosted_partitions.py     all partitions of the broker, by topic and number
    offline_replica.py       why one is offline, and whether it can come back
    partition_offsets.py     offsets by time, for ListOffsets
    flush_scheduler.py       when appended records are flushed; partition_flushes.py flushes them, in a thread
    wakeups.py, watcher.py   who is notified of a change
    topic_stats.py           counters

Callers: the other rooms of `replica`, and readers of metrics.
"""
