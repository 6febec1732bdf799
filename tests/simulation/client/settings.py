"""An operator of settings: changes one at a time. Each change is an operation of the history."""

from __future__ import annotations

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.configs import IncrementalAlterConfigsRequest
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome
from tests.simulation.upkeep_history import Setting, SettingChange

Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
Altered = IncrementalAlterConfigsRequest.AlterableConfig


class SettingsAdmin:
    """Asks once; what comes of it is in the history."""

    def __init__(self, cluster: Cluster, history: History, *, name: str) -> None:
        self.name = name
        self._cluster = cluster
        self._history = history

    async def alter(self, setting: Setting, value: str) -> None:
        """Sets a setting: of a broker at that broker, others at any."""
        is_topic = bool(setting.topic)
        resource = Resource(
            resource_type=ConfigResourceType.TOPIC if is_topic else ConfigResourceType.BROKER,
            resource_name=setting.topic or (str(setting.broker_id) if setting.broker_id else ""),
            configs=[Altered(name=setting.name, config_operation=ConfigOperation.SET, value=value)],
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        change = self._history.begin(SettingChange(process=self.name, setting=setting, value=value))
        try:
            if setting.broker_id:
                answer = await self._cluster.ask_broker(setting.broker_id, request)
            else:
                answer = await self._cluster.ask_any(request)
        except NotSent as error:
            self._history.end(change, Outcome.FAILED, str(error))
        except Unanswered as error:
            self._history.end(change, Outcome.UNKNOWN, str(error))
        else:
            code = ErrorCode.of(answer.responses[0].error_code)
            self._history.end(change, Outcome.OK if code is ErrorCode.NONE else Outcome.UNKNOWN, code.name)
