"""The features of a cluster: which protocols its brokers speak to clients and to each other (KIP-584).

A broker supports a range of levels of each feature, and registers it. The cluster has a level of each, finalized in the
metadata store; it may be raised once every broker supports more. At level 0 the protocol is not spoken.

features.py     which features there are, the levels that this broker supports, and those of each release of Kafka
finalized.py    the levels of the cluster, as handlers and coordinators ask for them
updates.py      which changes of the levels are allowed

The controller changes them (controller/feature_updates.py), every broker follows (cluster/feature_follower.py).
"""
