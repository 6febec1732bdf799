"""Odradek: a message broker that Apache Kafka's clients cannot tell from Apache Kafka.

The public interface is the command `odradek`, `odradek.testing`, the pytest fixture `odradek_broker` and the Spark data
source `odradek`. Everything else may change in any release.
"""
