from odradek.broker.coordinator.group.classic.group import ClassicGroup
from odradek.broker.coordinator.group.classic.member import Member
from odradek.broker.coordinator.group.classic.state import GroupState
from odradek.broker.coordinator.group.offsets.offsets import GroupOffsets, OffsetsOfGroup
from odradek.broker.coordinator.group.offsets.removal import expired_offsets
from odradek.protocol.compiler import encode_versioned
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from tests.broker.coordinator.group.harness import new_group
from tests.broker.coordinator.group.offsets.offset_log import OffsetLog, committed

RETENTION_MS = 1000
NOW_MS = 10_000


def a_group(state: GroupState, protocol_type: str | None, *topics: str, since_ms: int = 0) -> ClassicGroup:
    """Returns a group with a member that subscribes to these topics. An Empty group has no member."""
    group = new_group("g")
    if state is not GroupState.EMPTY and protocol_type is not None:
        subscription = encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 1)
        group.add(Member("m", None, "c", "h", 1, 1, protocol_type, (("range", subscription),)))
        group.restore(1, (protocol_type, "range"), "m")
    group.protocol_type = protocol_type
    group.state = state
    group.current_state_timestamp_ms = since_ms
    return group


def offsets_committed_at(**at_ms: int) -> OffsetsOfGroup:
    """Returns one committed offset per topic."""
    log = OffsetLog()
    commits = {topic: {0: committed(5, at_ms=each)} for topic, each in at_ms.items()}
    log.append(log.offsets.commit("g", commits, log.outcomes.append))
    log.safe()
    found = log.offsets.of_group("g")
    assert found is not None
    return found


def expired(group: ClassicGroup, offsets: OffsetsOfGroup, now_ms: int = NOW_MS) -> list[str]:
    return sorted(expired_offsets(group, offsets, now_ms, RETENTION_MS))


def test_all_offsets_of_a_group_expire_when_it_has_been_empty_for_the_retention_time() -> None:
    offsets = offsets_committed_at(old=0, young=NOW_MS)
    group = a_group(GroupState.EMPTY, "consumer", since_ms=NOW_MS - RETENTION_MS)
    assert expired(group, offsets, NOW_MS - 1) == []
    assert expired(group, offsets) == ["old", "young"]


def test_without_an_empty_timestamp_offsets_of_an_empty_group_expire_by_commit_time() -> None:
    offsets = offsets_committed_at(old=NOW_MS - RETENTION_MS, young=NOW_MS - RETENTION_MS + 1)
    assert expired(a_group(GroupState.EMPTY, "consumer", since_ms=-1), offsets) == ["old"]


def test_in_a_stable_consumer_group_only_offsets_of_unsubscribed_topics_expire() -> None:
    offsets = offsets_committed_at(wanted=0, unwanted=0, young=NOW_MS)
    assert expired(a_group(GroupState.STABLE, "consumer", "wanted"), offsets) == ["unwanted"]


def test_offsets_do_not_expire_while_the_subscription_is_unknown() -> None:
    group = a_group(GroupState.STABLE, "consumer", "wanted")
    group.subscribed_topics = None
    assert expired(group, offsets_committed_at(unwanted=0)) == []


def test_offsets_do_not_expire_while_a_group_rebalances() -> None:
    for state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE):
        assert expired(a_group(state, "consumer"), offsets_committed_at(unwanted=0)) == []


def test_offsets_of_a_non_consumer_group_with_members_do_not_expire() -> None:
    assert expired(a_group(GroupState.STABLE, "connect"), offsets_committed_at(old=0)) == []
    assert expired(a_group(GroupState.EMPTY, "connect"), offsets_committed_at(old=0)) == ["old"]


def test_offsets_of_a_group_that_only_stores_offsets_expire_by_commit_time() -> None:
    offsets = offsets_committed_at(old=NOW_MS - RETENTION_MS, young=NOW_MS - RETENTION_MS + 1)
    assert expired(a_group(GroupState.EMPTY, None), offsets) == ["old"]


def test_an_expiry_time_given_in_the_commit_overrides_the_retention_time() -> None:
    log = OffsetLog()
    commits = {
        "sooner": {0: committed(5, at_ms=NOW_MS, expires_ms=NOW_MS)},
        "later": {0: committed(5, at_ms=0, expires_ms=NOW_MS + 1)},
    }
    log.append(log.offsets.commit("g", commits, log.outcomes.append))
    log.safe()
    offsets = log.offsets.of_group("g")
    assert offsets is not None
    assert expired(a_group(GroupState.EMPTY, "consumer", since_ms=NOW_MS), offsets) == ["sooner"]
    assert expired(a_group(GroupState.EMPTY, None), offsets) == ["sooner"]


def test_an_offset_with_a_pending_commit_does_not_expire() -> None:
    log = OffsetLog(GroupOffsets())
    log.commit("g", plain={0: 5}, held={0: 5}, free={0: 5})
    log.safe()
    log.commit_in(7, "g", held={0: 6})
    log.safe()
    log.commit("g", plain={0: 6})
    offsets = log.offsets.of_group("g")
    assert offsets is not None
    assert expired(a_group(GroupState.EMPTY, None), offsets) == ["free"]
