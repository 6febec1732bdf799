"""A service on FastStream: SHOP BOOTSTRAP.

It bills each order, pays bills in batches, and answers a question. It fails if one of these takes longer than a minute.
"""

from __future__ import annotations

import asyncio
import sys

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from faststream import AckPolicy
from faststream.kafka import KafkaBroker

ORDERS = 5
WAIT_S = 60


async def create_topics(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 1, 1) for name in ("orders", "bills", "questions", "answers")])
    await admin.close()


async def serve(bootstrap: str) -> None:
    broker = KafkaBroker(bootstrap, enable_idempotence=True)
    paid: set[str] = set()
    is_paid, is_answered = asyncio.Event(), asyncio.Event()

    @broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest", ack_policy=AckPolicy.ACK)
    @broker.publisher("bills")
    async def bill(order: str) -> str:
        return f"bill of {order}"

    @broker.subscriber("bills", group_id="payments", auto_offset_reset="earliest", batch=True)
    async def pay(bills: list[str]) -> None:
        paid.update(bills)
        if len(paid) == ORDERS:
            is_paid.set()

    @broker.subscriber("questions", group_id="clerks", auto_offset_reset="earliest")
    async def answer(question: str) -> str:
        return f"the answer to {question}"

    @broker.subscriber("answers", group_id="asking", auto_offset_reset="earliest")
    async def hear(reply: str) -> None:
        assert reply == "the answer to what is in it"
        is_answered.set()

    async with broker:
        await broker.start()
        for number in range(ORDERS):
            await broker.publish(f"order {number}", "orders", key=b"%d" % number)
        async with asyncio.timeout(WAIT_S):
            await is_paid.wait()
            await broker.publish("what is in it", "questions", reply_to="answers", correlation_id="1")
            await is_answered.wait()


async def main(bootstrap: str) -> None:
    await create_topics(bootstrap)
    await serve(bootstrap)
    print("done")


asyncio.run(main(sys.argv[1]))
