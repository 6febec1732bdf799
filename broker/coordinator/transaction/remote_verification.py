"""Asks the transaction coordinators on other brokers whether a producer may write to partitions, or to add them to its
transaction. (KIP-890)

What waits for the same broker goes into one AddPartitionsToTxn request (version 4), with at most one entry for a
transactional id (`peer_queue.py`). If the broker cannot be reached, or its response lacks a partition, the answer is
NETWORK_EXCEPTION, which the producer retries. A broker that does not know the request (Kafka before 3.5) cannot be
asked: its producers' batches are appended without verification, as that release does. It cannot add partitions either:
that is UNSUPPORTED_VERSION.

Source: Kafka's `AddPartitionsToTxnManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import structlog

from odradek.broker.background.tasks import Spawn
from odradek.broker.coordinator.transaction.coordinator import PRODUCE_CODES
from odradek.broker.coordinator.transaction.peer_queue import PeerQueue
from odradek.broker.replica.leader.verification import VerificationRequest
from odradek.clients.network_errors import NetworkError, UnsupportedVersion
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.transactions import AddPartitionsToTxnRequest
from odradek.protocol.schema import Message
from odradek.protocol.topic_partition import TopicPartition

VERSION = 4

log = structlog.get_logger("coordinator.transaction")

Codes = dict[TopicPartition, ErrorCode]


class CoordinatorPeer(Protocol):
    """The connection to the coordinator's broker: `Peer`."""

    broker_id: int

    async def send(self, request: Message, *, version: int | None = None) -> Any:
        """Returns the response. Raises NetworkError."""


class _Waiting(NamedTuple):
    to_verify: VerificationRequest
    answer: asyncio.Future[Codes]


class _OneBroker:
    """The requests to one broker."""

    def __init__(self, peer: CoordinatorPeer, spawn: Spawn) -> None:
        self._peer = peer
        self._queue = PeerQueue(f"verification by broker {peer.broker_id}", spawn, _measure, self._send)

    async def ask(self, to_verify: VerificationRequest) -> Codes:
        answer: asyncio.Future[Codes] = asyncio.get_running_loop().create_future()
        self._queue.add(_Waiting(to_verify, answer))
        return await answer

    async def _send(self, taken: Mapping[str, _Waiting]) -> None:
        codes: dict[str, Codes] = {}
        otherwise = ErrorCode.NETWORK_EXCEPTION
        try:
            transactions = [_transaction(each.to_verify) for each in taken.values()]
            response = await self._peer.send(AddPartitionsToTxnRequest(transactions=transactions), version=VERSION)
            otherwise = ErrorCode.of(response.error_code) or ErrorCode.NETWORK_EXCEPTION
            codes = {result.transactional_id: _codes(result) for result in response.results_by_transaction}
        except UnsupportedVersion:
            otherwise = ErrorCode.NONE
        except NetworkError:
            pass  # the peer has logged it
        except Exception:
            log.exception("transactions not verified", broker_id=self._peer.broker_id)
            otherwise = ErrorCode.UNKNOWN_SERVER_ERROR
        finally:
            for transactional_id, each in taken.items():
                answers = codes.get(transactional_id, {})
                if not each.answer.done():
                    missing = ErrorCode.UNSUPPORTED_VERSION if each.to_verify.adds and not otherwise else otherwise
                    each.answer.set_result({key: answers.get(key, missing) for key in each.to_verify.partitions})


class RemoteVerification:
    """`coordinator_of(transactional_id)` returns the broker that coordinates an id; None or a negative number if there
    is none now. `peer_to(broker_id)` returns the connection to it.
    """

    def __init__(
        self,
        coordinator_of: Callable[[str], int | None],
        peer_to: Callable[[int], CoordinatorPeer],
        *,
        broker_id: int,
        spawn: Spawn,
    ) -> None:
        self._coordinator_of = coordinator_of
        self._peer_to = peer_to
        self._broker_id = broker_id
        self._spawn = spawn
        self._brokers: dict[int, _OneBroker] = {}

    def elsewhere(self, transactional_id: str) -> int | None:
        """Returns the other broker that coordinates the id; None if this one does, or none now."""
        coordinator = self._coordinator_of(transactional_id)
        if coordinator is None or coordinator < 0 or coordinator == self._broker_id:
            return None
        return coordinator

    async def ask(self, to_verify: VerificationRequest) -> Codes:
        """Returns NONE or an error for each partition of the request."""
        coordinator = to_verify.coordinator
        assert coordinator is not None, "this broker's coordinator is asked without a request to a broker"
        broker = self._brokers.get(coordinator)
        if broker is None:
            broker = self._brokers[coordinator] = _OneBroker(self._peer_to(coordinator), self._spawn)
        return await broker.ask(to_verify)


def _measure(each: _Waiting) -> tuple[str, int]:
    return each.to_verify.transactional_id, len(each.to_verify.led)


def _transaction(to_verify: VerificationRequest) -> AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, partition in to_verify.partitions:
        topics.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=to_verify.transactional_id,
        producer_id=to_verify.producer_id,
        producer_epoch=to_verify.producer_epoch,
        verify_only=not to_verify.adds,
        topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )


def _codes(result: Any) -> Codes:
    return {
        TopicPartition(topic.name, partition.partition_index): _code(partition.partition_error_code)
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }


def _code(code: int) -> ErrorCode:
    error = ErrorCode.of(code)
    return PRODUCE_CODES.get(error, error)
