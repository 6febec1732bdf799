"""ACLs as short texts, and the states of ACLs in which a request is sent.

An ACL is `+OPERATION TYPE NAME` (allow) or `-OPERATION TYPE NAME` (deny), for User:alice and all hosts. A name that
ends with `~` is a prefix. `by=PRINCIPAL` and `from=HOST` follow where they differ. A state is its ACLs, joined by `; `;
the empty text is the state without ACLs. CLUSTER needs no name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from odradek.broker.security.authorizer.authorizer import CLUSTER_NAME
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType

ALICE = "User:alice"
OF_TYPE = {
    "TOPIC": "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "GROUP": "READ DELETE DESCRIBE",
    "CLUSTER": "CREATE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE",
    "TRANSACTIONAL_ID": "WRITE DESCRIBE",
}
"""The operations that ACLs of each type of resource may name, beside ALL."""
Names = Callable[[str], str]
"""The name that a case uses for one of a scenario."""


class Need(NamedTuple):
    """An operation on a resource that a request needs, wholly or in part."""

    operation: str
    resource_type: str
    name: str

    @property
    def resource(self) -> str:
        return self.resource_type if self.resource_type == "CLUSTER" else f"{self.resource_type} {self.name}"


def needs_of(text: str) -> tuple[Need, ...]:
    """The needs of `OPERATION TYPE NAME; ...`."""
    words = (part.split() for part in text.split("; ") if part)
    return tuple(Need(word[0], word[1], word[2] if len(word) > 2 else CLUSTER_NAME) for word in words)


def few_states(needs: Sequence[Need]) -> list[str]:
    """No ACL, all that is needed, each part alone, and each part denied."""
    granted = _all(f"+{need.operation} {need.resource}" for need in needs)
    return _once(
        [
            "",
            granted,
            *(f"+{need.operation} {need.resource}" for need in needs),
            *(f"{granted}; -{need.operation} {need.resource}" for need in needs),
        ]
    )


def many_states(needs: Sequence[Need]) -> list[str]:
    """These, and every single operation, prefixes, wildcards, other principals, hosts and resources."""
    few = few_states(needs)
    granted = few[1] if needs else ""
    named = [need for need in needs if need.resource_type != "CLUSTER"]
    prefix = {need: f"{need.resource_type} {need.name[:2]}~" for need in named}
    states = [
        *few,
        *(f"{granted}; -ALL {resource}" for resource in _resources(needs)),
        *(f"{granted}; -{need.operation} {prefix[need]}" for need in named),
        *(f"{granted}; -{need.operation} {need.resource_type} *" for need in named),
        _all(f"+{need.operation} {prefix.get(need, need.resource)}" for need in needs),
        _all(f"+{need.operation} {need.resource_type}{' *' if need in prefix else ''}" for need in needs),
        _all(f"+{need.operation} {need.resource} by=User:bob" for need in needs),
        _all(f"+{need.operation} {need.resource} by=User:*" for need in needs),
        _all(f"+{need.operation} {need.resource} from=10.9.8.7" for need in needs),
        _all(f"+{need.operation} {need.resource} from=127.0.0.1" for need in needs),
        _all([granted, *(f"-{need.operation} {need.resource} from=10.9.8.7" for need in needs)]),
        _all([granted, *(f"-{need.operation} {need.resource} by=User:bob" for need in needs)]),
        _all(f"+{need.operation} {need.resource_type} elsewhere" for need in named),
        _all(f"+ALL {resource}" for resource in _resources(needs)),
        "+ALL CLUSTER",
    ]
    for resource in _resources(needs):
        states += [f"+{operation} {resource}" for operation in OF_TYPE[resource.split()[0]].split()]
    return _once(states)


def states_for_everyone(needs: Sequence[Need]) -> list[str]:
    """With allow.everyone.if.no.acl.found: no ACL, and ACLs that end that for a resource."""
    granted = _all(f"+{need.operation} {need.resource}" for need in needs)
    states = ["", granted, *(f"+{need.operation} {need.resource} by=User:bob" for need in needs)]
    states += [f"-{need.operation} {need.resource}" for need in needs]
    states += [f"-{need.operation} {need.resource} by=User:bob" for need in needs]
    states += [
        f"+{need.operation} {need.resource_type} {need.name[:2]}~ by=User:bob"
        for need in needs
        if need.resource_type != "CLUSTER"
    ]
    return _once(states)


def _resources(needs: Sequence[Need]) -> list[str]:
    return _once([need.resource for need in needs])


def _all(acls: Iterable[str]) -> str:
    return "; ".join(acl for acl in acls if acl)


def _once(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def creations_of(state: str, names: Names) -> list[dict[str, Any]]:
    """The ACLs of a state, as documents of CreateAcls."""
    return [_creation(acl, names) for acl in state.split("; ") if acl]


def _creation(acl: str, names: Names) -> dict[str, Any]:
    words = [word for word in acl[1:].split() if "=" not in word]
    more = dict(word.split("=", 1) for word in acl.split() if "=" in word)
    name = words[2] if len(words) > 2 else CLUSTER_NAME
    pattern = AclPatternType.PREFIXED if name.endswith("~") else AclPatternType.LITERAL
    return {
        "resource_type": AclResourceType[words[1]],
        "resource_name": name if name in ("*", CLUSTER_NAME) else names(name.removesuffix("~")),
        "resource_pattern_type": pattern,
        "principal": more.get("by", ALICE),
        "host": more.get("from", "*"),
        "operation": AclOperation[words[0]],
        "permission_type": AclPermissionType.ALLOW if acl[0] == "+" else AclPermissionType.DENY,
    }
