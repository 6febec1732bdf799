"""Odradek: a message broker that Apache Kafka's clients cannot tell from Apache Kafka.

The public interface is the command `odradek`, `odradek.testing`, the pytest fixtures `odradek_broker` and
`odradek_cluster`, and the Spark data source `odradek`. Everything else may change in any release.
"""

__version__ = "0.1.0"
