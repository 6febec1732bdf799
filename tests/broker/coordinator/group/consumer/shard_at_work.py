"""Consumer groups of a shard without a broker: the log, the timing wheel and the work beside the requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from odradek.broker.background.stepwise import Steps, finished
from odradek.broker.coordinator.group.consumer.group import ConsumerGroup
from odradek.broker.coordinator.group.consumer.heartbeat import Heartbeat
from odradek.broker.coordinator.group.consumer.member import JOINING, LEAVING, ConsumerMember
from odradek.broker.coordinator.group.consumer.settings import ConsumerGroupSettings
from odradek.broker.coordinator.group.coordinator import ConsumerGroups
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.schema import Message
from tests.broker.coordinator.group.consumer.group_at_work import REBALANCE_MS, SETTINGS, FakeTopics, NoTimers
from tests.broker.coordinator.group.harness import GROUP, GroupHarness

MOST_BYTES = 1 << 20
T = TypeVar("T")


class ShardAtWork(GroupHarness):
    """Work beside the requests waits until `work` is called."""

    def __init__(
        self,
        topics: FakeTopics | None = None,
        settings: ConsumerGroupSettings = SETTINGS,
        *,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._most_bytes = most_bytes
        self.waiting_work: list[Callable[[], object]] = []
        self.is_visible: Callable[[str], bool] = lambda _: True
        super().__init__(topics=topics or FakeTopics(foo=6, bar=3), consumer_settings=settings)

    def _consumer_groups(self) -> ConsumerGroups:
        return self._consumer_groups_with(self._begin, self._most_bytes)

    def _begin(
        self,
        steps: Steps[T],
        then: Callable[[T], object],
        failed: Callable[[Exception], object],
        name: str,
        size: int = 0,
    ) -> None:
        def run() -> None:
            try:
                value = finished(steps)
            except Exception as error:
                failed(error)
            else:
                then(value)

        self.waiting_work.append(run)

    def work(self) -> int:
        """Does what waits. Returns how much that was."""
        waiting, self.waiting_work = self.waiting_work, []
        for run in waiting:
            run()
        return len(waiting)

    @property
    def consumer_group(self) -> ConsumerGroup:
        """The group; an empty one if there is none."""
        group = self.shard.groups.get(GROUP)
        return group if isinstance(group, ConsumerGroup) else ConsumerGroup(GROUP, NoTimers())

    def consumer(self, member_id: str) -> ConsumerMember:
        member = self.consumer_group.member(member_id)
        assert member is not None
        return member

    # --- requests -----------------------------------------------------------------------------------------------

    def join_consumer(self, member_id: str, *names: str, **more: Any) -> Any:
        fields = {"rebalance_timeout_ms": REBALANCE_MS, "owned": {}, "topics": names or None, **more}
        return self.beat(member_id, JOINING, **fields)

    def leave_consumer(self, member_id: str) -> Any:
        return self.beat(member_id, LEAVING)

    def send(self, member_id: str, epoch: int, **fields: Any) -> list[Message | ProtocolError]:
        """Sends a heartbeat. Returns its answers: none while it waits for the log. Raises its refusal."""
        request = Heartbeat(GROUP, member_id, epoch, **{"client_id": "client", "client_host": "/127.0.0.1", **fields})
        answers: list[Message | ProtocolError] = []
        self.coordinator.consumer_heartbeat(request, self.is_visible, answers.append)
        for group in self.shard.groups.values():
            group.check()
        return answers

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        """Returns the response. Raises a refusal, also a late one."""
        (answer,) = self.send(member_id, epoch, **fields)
        if isinstance(answer, ProtocolError):
            raise answer
        return answer

    def refused_beat(self, member_id: str, epoch: int, **fields: Any) -> ErrorCode:
        """Returns the error. The heartbeat must leave no record."""
        records = len(self.log.records)
        try:
            self.beat(member_id, epoch, **fields)
        except ProtocolError as error:
            assert len(self.log.records) == records
            return error.code
        raise AssertionError("it was accepted")

    def is_resolving(self) -> bool:
        return self.consumer_group.is_resolving


def kinds(records: Any) -> list[int]:
    """Returns the types of records; negative for tombstones."""
    return [each.kind if each.value is not None else -each.kind for each in records]
