"""An authorizer that decides by a rule and remembers what it was asked, and brokers with an authorizer."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from typing import NamedTuple

from odradek.broker.broker_security import BrokerSecurity
from odradek.broker.network.open_files import open_files_limit
from odradek.broker.security.authorizer.acl_authorizer import AclAuthorizer
from odradek.broker.server import Broker
from odradek.broker.settings.config import BrokerConfig
from odradek.protocol.wire_codes import AclOperation, AclResourceType
from odradek.testing.one_broker import ANY_PORT
from odradek.testing.setting_texts import setting_texts
from tests.wire.api import Api, api_of


class Question(NamedTuple):
    """`name`: "" for any resource of the type."""

    operation: AclOperation
    resource_type: AclResourceType
    name: str


Rule = Callable[[Question], bool]


def everything(_: Question) -> bool:
    return True


def nothing(_: Question) -> bool:
    return False


def but(*denied: Question) -> Rule:
    """Everything except these."""
    return lambda question: question not in denied


def only(*allowed: tuple[AclOperation, AclResourceType]) -> Rule:
    """These operations on all resources of a type."""
    return lambda question: question[:2] in allowed


class ScriptedAuthorizer(AclAuthorizer):
    """Set `rule` with `change`. ACLs do not count."""

    def __init__(self, rule: Rule = everything) -> None:
        super().__init__()
        self.rule = rule
        self.asked: list[Question] = []
        self.clients: set[tuple[str, str]] = set()

    def change(self, rule: Rule) -> None:
        self.rule = rule
        self.changes += 1
        self.asked.clear()

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType, name: str
    ) -> bool:
        self.clients.add((principal, host))
        question = Question(operation, resource_type, name)
        self.asked.append(question)
        return self.rule(question)

    def allows_some(self, principal: str, host: str, operation: AclOperation, resource_type: AclResourceType) -> bool:
        return self.allows(principal, host, operation, resource_type, "")


class _Broker(Broker):
    """A broker whose authorizer is given."""

    def __init__(self, config: BrokerConfig, given: AclAuthorizer) -> None:
        super().__init__(config, open_files=open_files_limit())
        self._given = given

    def new_broker_security(self) -> BrokerSecurity:
        broker_security = super().new_broker_security()
        broker_security.authorizer = self._given
        return broker_security


@contextlib.asynccontextmanager
async def broker_with(authorizer: AclAuthorizer, settings: Mapping[str, object] | None = None) -> AsyncIterator[Broker]:
    """Yields a running broker whose authorizer this is."""
    with tempfile.TemporaryDirectory() as folder:
        texts = setting_texts({"listeners": f"PLAINTEXT://{ANY_PORT}", "log.dirs": folder, **(settings or {})}, {})
        broker = _Broker(BrokerConfig.single_node(texts), authorizer)
        await broker.start()
        try:
            yield broker
        finally:
            await broker.stop()


@contextlib.asynccontextmanager
async def api_with(authorizer: AclAuthorizer, settings: Mapping[str, object] | None = None) -> AsyncIterator[Api]:
    """Yields the client of a new broker whose authorizer this is."""
    async with broker_with(authorizer, settings) as broker, api_of(broker) as api:
        yield api
