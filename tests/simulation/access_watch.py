"""Watches what the store and the brokers have of the access rules and passwords that change: notes in the history what
the store has, whether news can reach a broker, and a broker that does not know what the store has had for long.

It reads the entries by code of its own.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from odradek.broker.metadata_store.interface import Entry
from odradek.broker.metadata_store.tree import MetadataTree
from odradek.broker.security.authorizer.acl import AccessControlEntry, ResourcePattern
from odradek.broker.security.sasl.scram import MECHANISMS, ScramCredential
from odradek.broker.server import Broker
from odradek.protocol.wire_codes import AclPatternType, AclResourceType
from tests.simulation.access import KEYS, MECHANISM
from tests.simulation.access_history import AccessStored, Key, Pattern, Reach, Rule, Value, nothing_for
from tests.simulation.access_invariants import LONGEST_NEWS_S
from tests.simulation.history import History
from tests.simulation.loop import SimulatedLoop
from tests.simulation.machine import Machine
from tests.simulation.missteps import Finding, Misstep
from tests.simulation.store_links import StoreLinks
from tests.simulation.stored_changes import Entries

RULES, PREFIXED_RULES, USERS = "/kafka-acl", "/kafka-acl-extended/prefixed", "/config/users"
LITERAL, PREFIXED = "LITERAL", "PREFIXED"
SALT = "salt of "
"""How the salt of a password begins that the access keeper gives; the password follows. So the store tells it."""

Fields = tuple[tuple[str, str], ...]
"""The text of a password in the store: names and values, sorted."""
Access = frozenset[Rule] | frozenset[tuple[str, Fields]]


class AccessWatch:
    """`machines` may be added later."""

    def __init__(self, history: History, loop: SimulatedLoop, machines: Mapping[int, Machine]) -> None:
        self._history = history
        self._loop = loop
        self._machines = machines
        self._stored: dict[Key, Value] = {}
        self._in_reach: dict[int, bool] = {}
        self._agreed_s: dict[tuple[int, Key], float] = {}
        """When a broker last knew what the store had, or could not."""

    def applied(self, after: Entries) -> None:
        """A transaction has changed these entries of the store."""
        for path, entry in after.items():
            key = _key_at(path)
            if key not in KEYS:
                continue
            value = _stored_value(key, entry)
            if value != self._stored.get(key, nothing_for(key)):
                self._stored[key] = value
                self._history.note(AccessStored(process="store", key=key, value=value))

    def look(self, links: StoreLinks) -> None:
        """Looks at all brokers."""
        for broker_id, machine in self._machines.items() if self._stored else ():
            broker = machine.running
            is_in_reach = broker is not None and not machine.is_paused and not links.is_cut(machine.name)
            if self._in_reach.get(broker_id) is not is_in_reach:
                self._in_reach[broker_id] = is_in_reach
                self._history.note(Reach(process="store", broker_id=broker_id, is_in_reach=is_in_reach))
            self._compare(broker_id, broker if is_in_reach else None)

    def _compare(self, broker_id: int, broker: Broker | None) -> None:
        now_s = self._loop.time()
        for key, stored in self._stored.items():
            known = None if broker is None else _known_value(broker, key)
            agreed_s = self._agreed_s.setdefault((broker_id, key), now_s)
            if known is None or known == stored:
                self._agreed_s[broker_id, key] = now_s
            elif now_s - agreed_s > LONGEST_NEWS_S:
                self._agreed_s[broker_id, key] = now_s
                for finding in differences(key, stored, known):
                    text = f"broker {broker_id} has not heard for {LONGEST_NEWS_S:.0f} s that {finding.text}"
                    self._history.note(Misstep(process="store", finding=finding._replace(text=text)))


def differences(key: Key, stored: Value, known: Value) -> Iterator[Finding]:
    """What a broker does not know."""
    if isinstance(stored, str) or isinstance(known, str):
        yield Finding("known", f"{key} has the password {stored!r}, not {known!r}")
        return
    for rule in sorted(stored - known):
        yield Finding("known", f"{key} has the rule {rule}")
    for rule in sorted(known - stored):
        yield Finding("known", f"{key} has lost the rule {rule}")


# --- what the store has ---------------------------------------------------------------------------------------------


def access_in(tree: MetadataTree) -> dict[str, Access]:
    """All rules and passwords that the store has."""
    found: dict[str, Access] = {}
    for root, kind in ((RULES, LITERAL), (PREFIXED_RULES, PREFIXED)):
        for resource in tree.children(root):
            for name in tree.children(f"{root}/{resource}"):
                rules = _rules(tree.get(f"{root}/{resource}/{name}"))
                found[_shown(resource, kind, name)] = rules
    for name in tree.children(USERS):
        passwords = _passwords(tree.get(f"{USERS}/{name}"))
        found[f"user {unquote(name)}"] = frozenset(passwords.items())
    return {what: access for what, access in found.items() if access}


def _key_at(path: str) -> Key | None:
    for root, is_prefixed in ((RULES, False), (PREFIXED_RULES, True)):
        if path.startswith(f"{root}/Topic/"):
            return Pattern(path.removeprefix(f"{root}/Topic/"), is_prefixed)
    return unquote(path.removeprefix(f"{USERS}/")) if path.startswith(f"{USERS}/") else None


def _stored_value(key: Key, entry: Entry | None) -> Value:
    return _rules(entry) if isinstance(key, Pattern) else _password(_passwords(entry).get(MECHANISM))


def _rules(entry: Entry | None) -> frozenset[Rule]:
    return frozenset(
        Rule(each["principal"], each["host"], each["operation"].upper(), each["permissionType"].upper())
        for each in _content(entry).get("acls", ())
    )


def _passwords(entry: Entry | None) -> dict[str, Fields]:
    """What the store has instead of a user's passwords, by mechanism."""
    texts: dict[str, str] = _content(entry).get("config", {})
    return {
        mechanism: tuple(sorted(field.partition("=")[::2] for field in text.split(",")))
        for mechanism, text in texts.items()
        if mechanism in MECHANISMS
    }


def _content(entry: Entry | None) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((entry.data if entry is not None else None) or b"{}")
    return content


def _password(fields: Fields | None) -> str:
    salt = base64.b64decode(dict(fields or ()).get("salt", "")).decode()
    return salt.removeprefix(SALT)


# --- what a broker knows --------------------------------------------------------------------------------------------


def access_known_to(broker: Broker) -> dict[str, Access]:
    """All rules and passwords that a broker knows."""
    authorizer = broker.broker_security.authorizer
    acls = {} if authorizer is None else authorizer.acls
    return {
        **{
            _shown(pattern.resource_type.name.replace("_", ""), pattern.pattern_type.name, pattern.name): _known(
                entries
            )
            for pattern, entries in acls.items()
        },
        **{
            f"user {name}": frozenset((mechanism, _fields(each)) for mechanism, each in credentials.items())
            for name, credentials in broker.cluster.configs.users.by_user.items()
        },
    }


def _known_value(broker: Broker, key: Key) -> Value:
    if isinstance(key, str):
        credential = broker.cluster.configs.users.credential(MECHANISM, key)
        return "" if credential is None else _password(_fields(credential))
    authorizer = broker.broker_security.authorizer
    assert authorizer is not None
    kind = AclPatternType.PREFIXED if key.is_prefixed else AclPatternType.LITERAL
    return _known(authorizer.acls.get(ResourcePattern(AclResourceType.TOPIC, kind, key.name), ()))


def _known(entries: Iterable[AccessControlEntry]) -> frozenset[Rule]:
    return frozenset(
        Rule(each.principal, each.host, each.operation.name.replace("_", ""), each.permission.name) for each in entries
    )


def _fields(credential: ScramCredential) -> Fields:
    return tuple(sorted(field.partition("=")[::2] for field in credential.text().split(",")))


def _shown(resource: str, kind: str, name: str) -> str:
    return f"rules of {kind} {resource.upper()} {name}"
