"""The assignors of consumer groups: which member gets which partitions. (KIP-848)

    assignor.py         what an assignor is given and returns; the assignors by name
    range.py            ranges of each topic's partitions, in the order of the members
    uniform.py          equal shares, and as few moves as possible, where all members have the same topics
    uniform_mixed.py    the same where members have different topics
    kept.py             what members keep of the last target

They work in steps, as a group may be large, and know members and topics by their ids alone.
"""
