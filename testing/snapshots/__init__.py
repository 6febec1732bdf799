"""Snapshots of a broker or a cluster, and brokers that start from one.

    snapshot.py    a snapshot: a directory that is kept, checked, and given to a new broker
    manifest.py    the list of its files, by which a change of them is found
    taking.py      takes one of a running broker
    of_clusters.py    takes one of a cluster at rest, and what the metadata store of a new cluster begins with
    origin.py      what a broker starts from, and what a reset brings back

Callers: the other modules of `odradek.testing`. docs/testing/snapshots.md is for users.
"""
