"""Bugs of access rules and passwords that change: see planted.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from odradek.broker.cluster import stored_acls
from odradek.broker.cluster.dynamic_configs import ConfigChange, DynamicConfigs
from odradek.broker.cluster.store_follower import StoreFollower
from odradek.broker.cluster.user_credentials import UserCredentials, user_path
from odradek.broker.handlers import acls
from odradek.broker.handlers.authorized_produce import AuthorizedProduceHandler
from odradek.broker.metadata_store.interface import Delete, Entry, SessionState
from odradek.broker.security.authorizer import acl_authorizer
from odradek.broker.security.authorizer.acl import ResourcePattern
from odradek.broker.security.authorizer.acl_authorizer import AclAuthorizer
from odradek.protocol.wire_codes import AclOperation
from tests.simulation.access import GUARDED
from tests.simulation.planted_in_sessions import Replace

LATE_S = 3.0

# --- rules


def _forget_missed_rules(replace: Replace) -> None:
    changed = StoreFollower._session_changed

    def of_others(self: StoreFollower, state: SessionState) -> None:
        if self._what != "ACLs":
            changed(self, state)

    replace(StoreFollower, "_session_changed", of_others)


def _replace_rules(replace: Replace) -> None:
    replace(acls, "_addition", lambda added: lambda before: frozenset(added))


def _leave_the_last_rule(replace: Replace) -> None:
    planned = stored_acls._planned

    def leave(pattern: ResourcePattern, entry: Entry | None, change: Any) -> Any:
        altered, write = yield from planned(pattern, entry, change)
        return altered, None if isinstance(write, Delete) else write

    replace(stored_acls, "_planned", leave)


def _remember_decisions(replace: Replace) -> None:
    replace(AclAuthorizer, "_forget_decisions", lambda self: None)


def _allow_before_denials(replace: Replace) -> None:
    decide = AclAuthorizer._decide

    def allow(self: AclAuthorizer, principal: str, host: str, operation: AclOperation, kind: Any, name: str) -> bool:
        rules = self._rules_of(principal, host, kind)
        if any(acl_authorizer._match(each.allowed, (operation, AclOperation.ALL), name) for each in rules):
            return True
        return decide(self, principal, host, operation, kind, name)

    replace(AclAuthorizer, "_decide", allow)


def _write_what_is_denied(replace: Replace) -> None:
    produce = AuthorizedProduceHandler._produce

    def write(self: AuthorizedProduceHandler, request: Any, context: Any) -> Any:
        outcome = yield from produce(self, request, context)
        topics = [topic for topic in request.topic_data if topic.name == GUARDED]
        if topics:
            self._handler.produce(type(request)(acks=0, timeout_ms=0, topic_data=topics), context)
        return outcome

    replace(AuthorizedProduceHandler, "_produce", write)


# --- passwords


def _keep_deleted_passwords(replace: Replace) -> None:
    put = UserCredentials.put

    def keep(self: UserCredentials, user: str, config: Mapping[str, str]) -> None:
        if config:
            put(self, user, config)

    replace(UserCredentials, "put", keep)


def _apply_passwords_late(replace: Replace) -> None:
    async def alter(self: DynamicConfigs, user: str, change: ConfigChange) -> None:
        async with self._follower.applying:
            after = await self._alter(user_path(user), change, False)
            if after is not None:
                asyncio.get_running_loop().call_later(LATE_S, self.users.put, user, after)

    replace(DynamicConfigs, "alter_user", alter)


def _miss_passwords(replace: Replace) -> None:
    settings_of = DynamicConfigs._apply_settings_of

    async def miss(self: DynamicConfigs, changed: Any) -> None:
        if changed.kind != "users":
            await settings_of(self, changed)

    replace(DynamicConfigs, "_apply_settings_of", miss)


ACCESS_BUGS: Mapping[str, Callable[[Replace], None]] = {
    "rules that were missed in a lost session are not read": _forget_missed_rules,
    "an addition replaces the rules that are there": _replace_rules,
    "the last rule of a pattern stays in the store": _leave_the_last_rule,
    "decisions are remembered when rules change": _remember_decisions,
    "an allowance comes before a denial": _allow_before_denials,
    "what is denied is written all the same": _write_what_is_denied,
    "a deleted password stays": _keep_deleted_passwords,
    "passwords count long after they are confirmed": _apply_passwords_late,
    "passwords that other brokers change are not applied": _miss_passwords,
}
"""How to plant each bug."""
