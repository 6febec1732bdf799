"""The coordinators of groups and of transactions, over their internal topics. They decide, the runtime acts.

    coordinators.py      creates and wires both
    internal_topics.py   creates the topics when they are first needed; how their logs are read and written
    runtime/             appends what a coordinator decides, and loads it again
    group/               the coordinator of groups
    transaction/         the coordinator of transactions

Callers: the handlers, `assembly.py`, the metrics.
"""
