"""Proposals of in-sync replicas as they may arrive: late, twice, from an earlier registration of the leader, from a
broker that does not lead. The controller must refuse each. What it stores nevertheless is judged there (`members`)."""

from __future__ import annotations

import asyncio

from odradek.protocol.messages.replica_control import AlterPartitionRequest
from tests.simulation.client.impostor import Impostor, Proposable
from tests.simulation.proposal_history import Proposal

PAUSE_S = (0.3, 1.2)


class LateProposals(Impostor):
    """See the head of this file."""

    async def run(self) -> None:
        """Proposes until the end."""
        while not self.is_ending:
            await asyncio.sleep(self._source.uniform(*PAUSE_S))
            found = [each for each in self._read() if len(each.replicas) > 1 and each.leader_id in each.broker_epochs]
            if found:
                proposal = self._history.begin(self._late(self._source.choice(found)))
                await self._ask_controller(proposal, _request(proposal))

    def _late(self, known: Proposable) -> Proposal:
        source, leader_id = self._source, known.leader_id
        broker_epoch = known.broker_epochs[leader_id]
        leader_epoch, partition_epoch = known.leader_epoch, known.partition_epoch
        others = [broker for broker in known.replicas if broker != leader_id]
        chance = source.random()
        if chance < 0.3:
            leader_epoch -= 1
        elif chance < 0.6:
            partition_epoch -= source.randint(1, 2)
        elif chance < 0.75:
            broker_epoch -= 1
        elif chance < 0.85:
            partition_epoch += 1000
        else:
            leader_id = source.choice(others)
            broker_epoch = known.broker_epochs.get(leader_id, 0)
        others = [broker for broker in known.replicas if broker != leader_id]
        in_sync = [leader_id, *(others if source.random() < 0.5 else source.sample(others, len(others) // 2))]
        if sorted(in_sync) == sorted(known.in_sync):
            in_sync = [leader_id] if len(in_sync) > 1 else [leader_id, *others]
        return Proposal(
            process=self.name,
            partition=known.partition,
            in_sync=(*in_sync,),
            broker_id=leader_id,
            broker_epoch=broker_epoch,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
        )


def _request(proposal: Proposal) -> AlterPartitionRequest:
    proposed = AlterPartitionRequest.PartitionData(
        partition_index=proposal.partition.partition,
        leader_epoch=proposal.leader_epoch,
        new_isr=[*proposal.in_sync],
        partition_epoch=proposal.partition_epoch,
    )
    topic = AlterPartitionRequest.TopicData(topic_name=proposal.partition.topic, partitions=[proposed])
    return AlterPartitionRequest(broker_id=proposal.broker_id, broker_epoch=proposal.broker_epoch, topics=[topic])
