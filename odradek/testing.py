"""Brokers for the tests of other projects.

    async with in_process_broker() as broker:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)

`in_process_broker` runs a broker on the running event loop, `BrokerThread` in a thread of its own for blocking clients.
The pytest fixture `odradek_broker` is a `BrokerThread`.
"""

from odradek.broker.testing import BrokerThread, in_process_broker

__all__ = ["BrokerThread", "in_process_broker"]
