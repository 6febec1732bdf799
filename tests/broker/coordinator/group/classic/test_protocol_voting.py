"""The protocol of a generation: the first choice of most members among the protocols that all of them support."""

import pytest

from tests.broker.coordinator.group.harness import GroupHarness

R, RR, S = "range", "roundrobin", "sticky"


def chosen(*members: list[str]) -> str:
    harness = GroupHarness()
    requests = [harness.join(protocols=protocols) for protocols in members]
    if len(members) > 1:
        requests[0] = harness.join(requests[0].response.member_id, protocols=members[0])
    (protocol,) = {each.response.protocol_name for each in requests}
    return str(protocol)


@pytest.mark.parametrize(
    ("members", "protocol"),
    [
        ([[R, RR]], R),
        ([[R, RR], [RR, R], [RR, R]], RR),  # most votes
        ([[R, RR], [RR]], RR),  # the only common protocol
        ([[R, RR, S], [RR, R, S], [S, RR]], RR),  # range is no candidate: its voter's next choice counts
        ([[R, RR], [RR, R]], R),  # equal votes: the choice of the member that came first
        ([[R, R], [RR, R]], R),  # a protocol named twice counts once
        ([[S, R], [S, R], [R, S], [R, S], [S, R]], S),
    ],
)
def test_every_member_votes_for_its_first_choice_among_the_common_protocols(
    members: list[list[str]], protocol: str
) -> None:
    assert chosen(*members) == protocol


def test_a_protocol_becomes_a_candidate_when_the_member_without_it_leaves() -> None:
    harness = GroupHarness()
    first = harness.join(protocols=[S, R]).response.member_id
    other = harness.join(protocols=[R])
    assert harness.join(first, protocols=[S, R]).response.protocol_name == R
    harness.leave(other.response.member_id)
    assert harness.join(first, protocols=[S, R]).response.protocol_name == S
