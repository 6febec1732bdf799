"""The runtime under both coordinators: a shard for each led partition of an internal topic. It knows no topic by name.

    shard.py             the contract between a coordinator and the runtime: shards and decisions
    record.py            the key and value of a record
    runtime.py           appends the records of a decision, replays them, and reports when they are safe; the partition
                         of an id
    led_partition.py     a partition that this broker leads, with its shard
    loading.py           fills a shard from its log; log_walk.py reads the log

Callers: the two coordinators, and `coordinators.py`, which creates a runtime for each.
"""
