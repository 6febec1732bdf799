"""Answers CreateTopics, of clients and of brokers that create topics on their behalf.

    (A) A topic that a request names twice fails with INVALID_REQUEST; the others are processed.
    (B) From v5 on the result of a created topic has its partitions, replication factor and settings; a failed one has
        -1 and no settings.

Source: Kafka's `KafkaApis.handleCreateTopicsRequest`.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.background.stepwise import Pace, Steps, each_in_steps
from odradek.broker.background.turns import Turns
from odradek.broker.controller.topic_planner import PlannedTopic
from odradek.broker.controller.topic_requests import TopicRequests
from odradek.broker.metadata.new_topic import NOTHING, RESERVED_TOPIC, NewTopic, repeated_in, repetition_of
from odradek.broker.settings.config import BrokerConfig
from odradek.broker.settings.config_description import ConfigDescription, InheritedDescriptions, TopicDescriptions
from odradek.protocol.errors import ErrorCode, ProtocolError
from odradek.protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse

TopicResult = CreateTopicsResponse.CreatableTopicResult
ResultConfig = CreateTopicsResponse.CreatableTopicConfigs


class TopicCreations:
    """`topics` creates them. `config` has what a topic's settings inherit."""

    def __init__(self, topics: TopicRequests, config: BrokerConfig, turns: Turns) -> None:
        self._topics = topics
        self._config = config
        self._turns = turns
        self._inherited: InheritedDescriptions[ResultConfig] = InheritedDescriptions(config)

    async def answer(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Creates topics, or only validates them with validate_only."""
        in_turns = self._turns.take
        repeated = repeated_in(topic.name for topic in request.topics)
        topics = [topic for topic in request.topics if topic.name not in repeated and topic.name != RESERVED_TOPIC]
        outcomes = await self._topics.create(
            await in_turns(each_in_steps(topics, _new_topic)),
            timeout_ms=request.timeout_ms,
            validate_only=request.validate_only,
        )
        outcome_of = {topic.name: outcome for topic, outcome in zip(topics, outcomes, strict=True)}
        named = ((topic.name, outcome_of.get(topic.name) or _refusal(topic.name)) for topic in request.topics)
        return CreateTopicsResponse(topics=await in_turns(self._results(named)))

    def _results(self, outcomes: Iterable[tuple[str, PlannedTopic | ProtocolError]]) -> Steps[list[TopicResult]]:
        """Builds the results (B)."""
        descriptions = TopicDescriptions(self._config, _shown, self._inherited.current())

        def result(name: str, outcome: PlannedTopic | ProtocolError) -> TopicResult:
            if isinstance(outcome, ProtocolError):
                message = str(outcome.args[0])
                return TopicResult(name=name, error_code=outcome.code, error_message=message, configs=[])
            return TopicResult(
                name=name,
                topic_id=outcome.topic_id,
                error_message=None,
                num_partitions=len(outcome.replicas),
                replication_factor=len(outcome.replicas[0]),
                configs=descriptions.of(outcome.config),
            )

        results = []
        pace = Pace()
        for name, outcome in outcomes:
            results.append(result(name, outcome))
            if pace.step_ends(1 + len(results[-1].configs or ()) // 10):
                yield
        return results


def _new_topic(topic: CreateTopicsRequest.CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {one.partition_index: one.broker_ids for one in topic.assignments} if topic.assignments else NOTHING,
        {config.name: config.value for config in topic.configs} if topic.configs else NOTHING,
    )


def _refusal(name: str) -> ProtocolError:
    """Returns why a topic is refused without a change."""
    if name == RESERVED_TOPIC:
        return ProtocolError(ErrorCode.INVALID_REQUEST, f"'{RESERVED_TOPIC}' cannot be created: the name is reserved")
    return repetition_of(name)


def _shown(setting: ConfigDescription) -> ResultConfig:
    return ResultConfig(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        is_sensitive=setting.is_sensitive,
    )
