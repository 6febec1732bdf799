"""The coordinators of groups and of transactions, over their internal topics. They decide, the runtime acts.

    coordinators.py      creates and wires both
    shard.py             the contract between a coordinator and the runtime: shards and decisions
    runtime.py           appends the records of a decision, replays them, and reports when they are safe
    led_partition.py     a partition that this broker leads, with its shard
    loading.py           fills a shard from its log; log_walk.py reads the log
    record.py            the key and value of a record
    internal_topics.py   creates the topics when they are first needed
    java_hash.py         which partition an id belongs to

`group/` and `transaction/` are the two coordinators. Callers: the handlers, `server.py`, the metrics.
"""
