"""An administrator of access: adds and removes rules, gives and takes passwords. Each change is an operation of the
history, asked for once, of one broker."""

from __future__ import annotations

from typing import Any

from odradek.broker.security.sasl.scram import LEAST_ITERATIONS, SCRAM_SHA_256
from odradek.clients.admin.acls import Acl
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.acls import DeleteAclsRequest, DeleteAclsResponse
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequest
from odradek.protocol.schema import Message
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from tests.simulation.access_history import PasswordChange, Pattern, Rule, RuleChange
from tests.simulation.access_watch import SALT
from tests.simulation.client.acls import create_acls_request
from tests.simulation.client.cluster import Cluster
from tests.simulation.client.wire import NotSent, Unanswered
from tests.simulation.history import History, Outcome

Filter = DeleteAclsRequest.DeleteAclsFilter
Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion


class AccessAdmin:
    """Asks once; what comes of it is in the history."""

    def __init__(self, cluster: Cluster, history: History, *, name: str) -> None:
        self.name = name
        self._cluster = cluster
        self._history = history

    async def change_rule(self, broker_id: int, pattern: Pattern, rule: Rule, *, adds: bool) -> Outcome:
        """Adds or removes a rule."""
        change = RuleChange(process=self.name, pattern=pattern, rule=rule, adds=adds, broker_id=broker_id)
        acl = _acl(pattern, rule)
        if adds:
            return await self._change(change, create_acls_request([acl]))
        selected = Filter(
            resource_type_filter=acl.resource_type,
            resource_name_filter=acl.name,
            pattern_type_filter=acl.pattern_type,
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        return await self._change(change, DeleteAclsRequest(filters=[selected]))

    async def change_password(self, broker_id: int, user: str, password: str) -> Outcome:
        """Gives a user a password, or takes it (an empty one)."""
        change = PasswordChange(process=self.name, user=user, password=password, broker_id=broker_id)
        if not password:
            deletion = Deletion(name=user, mechanism=SCRAM_SHA_256.number)
            return await self._change(change, AlterUserScramCredentialsRequest(deletions=[deletion]))
        salt = f"{SALT}{password}".encode()
        upsertion = Upsertion(
            name=user,
            mechanism=SCRAM_SHA_256.number,
            iterations=LEAST_ITERATIONS,
            salt=salt,
            salted_password=SCRAM_SHA_256.salted_password(password, salt, LEAST_ITERATIONS),
        )
        return await self._change(change, AlterUserScramCredentialsRequest(upsertions=[upsertion]))

    async def _change(self, change: RuleChange | PasswordChange, request: Message) -> Outcome:
        self._history.begin(change)
        try:
            answer = await self._cluster.ask_broker(change.broker_id, request)
        except NotSent as error:
            self._history.end(change, Outcome.FAILED, str(error))
        except Unanswered as error:
            self._history.end(change, Outcome.UNKNOWN, str(error))
        else:
            failed = [ErrorCode.of(code).name for code in _codes(answer) if code != ErrorCode.NONE]
            if isinstance(answer, DeleteAclsResponse) and not failed and not answer.filter_results[0].matching_acls:
                self._history.end(change, Outcome.FAILED, "the broker knows of no such rule")
                return change.outcome
            self._history.end(change, Outcome.UNKNOWN if failed else Outcome.OK, ", ".join(failed))
        return change.outcome


def _acl(pattern: Pattern, rule: Rule) -> Acl:
    return Acl(
        AclResourceType.TOPIC,
        pattern.name,
        AclPatternType.PREFIXED if pattern.is_prefixed else AclPatternType.LITERAL,
        rule.principal,
        rule.host,
        AclOperation[rule.operation],
        AclPermissionType[rule.permission],
    )


def _codes(answer: Any) -> list[int]:
    """The error codes of a response, those of deleted rules among them."""
    results: list[Any] = getattr(answer, "results", None) or getattr(answer, "filter_results", None) or []
    return [
        code
        for each in results
        for code in (each.error_code, *(acl.error_code for acl in getattr(each, "matching_acls", ())))
    ]
