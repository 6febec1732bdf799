"""CreateAcls, DescribeAcls and DeleteAcls: what is created, found and deleted, and what is refused."""

from __future__ import annotations

from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.wire_codes import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from tests.beside_kafka.documents import Document
from tests.broker.authorization.acl_states import creations_of
from tests.broker.authorization.case import Cases, always
from tests.broker.authorization.script import Notes, Scripts
from tests.broker.authorization.stage import without_own_texts

SCRIPTS = Scripts()
CASES = Cases()
TYPE, PATTERN, OPERATION, PERMISSION = AclResourceType, AclPatternType, AclOperation, AclPermissionType
LONG = 32_767


def binding(**fields: Any) -> Document:
    """An ACL that may be created, with other fields."""
    made = {
        "resource_type": TYPE.TOPIC,
        "resource_name": "t",
        "resource_pattern_type": PATTERN.LITERAL,
        "principal": "User:carol",
        "host": "*",
        "operation": OPERATION.READ,
        "permission_type": PERMISSION.ALLOW,
    }
    return made | fields


def acl_filter(**fields: Any) -> Document:
    """A filter that finds all ACLs, with other fields."""
    made: Document = {
        "resource_type_filter": TYPE.ANY,
        "resource_name_filter": None,
        "pattern_type_filter": PATTERN.ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": OPERATION.ANY,
        "permission_type": PERMISSION.ANY,
    }
    return made | fields


def results(answer: Document) -> Any:
    """The outcome of every creation, in the order of the request."""
    return [outcome(result) for result in answer["Results"]]


def outcome(answer: Document) -> Document:
    return {key: without_own_texts(answer[key]) for key in ("ErrorCode", "ErrorMessage")}


def found(answer: Document) -> Any:
    """The error if there is one, else the ACLs in a fixed order."""
    if answer["ErrorCode"]:
        return outcome(answer)
    return sorted(
        [resource["ResourceType"], resource["ResourceName"], resource.get("PatternType", ""), *acl.values()]
        for resource in answer["Resources"]
        for acl in resource["Acls"]
    )


def deleted(answer: Document) -> Any:
    """For every filter its outcome and the ACLs that it has deleted, in a fixed order."""
    return [
        {**outcome(one), "Acls": sorted(list(acl.values()) for acl in one["MatchingAcls"])}
        for one in answer["FilterResults"]
    ]


async def create(notes: Notes, about: str, *bindings: Document) -> None:
    await notes.ask(about, ApiKey.CREATE_ACLS, {"creations": list(bindings)}, pick=results)


async def describe(notes: Notes, about: str, **fields: Any) -> None:
    await notes.ask(about, ApiKey.DESCRIBE_ACLS, acl_filter(**fields), version=max(notes.version, 1), pick=found)


WRONG_FIELDS: dict[str, list[Any]] = {
    "resource_name": [
        "a/b",
        "/",
        "",
        " ",
        ".",
        "..",
        "a b",
        "ü",
        "*",
        "a*",
        "x" * 250,
        "x" * LONG,
        "a\nb",
        "__consumer_offsets",
    ],
    "principal": [
        *("carol", "", "User:", ":carol", ":", "User:*", "*", "user:carol", "Group:g", "User:a:b", "User: carol"),
        *("User:CN=a,O=b", "User:ü", "User:" + "x" * 1000),
    ],
    "host": ["", "10.0.0.1", "localhost", "::1", "0:0:0:0:0:0:0:1", "10.0.0.0/8", "no host", "*.example.com", "ü"],
    "operation": [99, -1, *OPERATION],
    "permission_type": [0, 1, 2, 9, -1],
    "resource_type": [0, 1, 6, 7, 9, -1],
    "resource_pattern_type": [0, 1, 2, 4, 9, -1],
}


async def try_fields(notes: Notes, **fixed: Any) -> None:
    for field, values in WRONG_FIELDS.items():
        if field in fixed or (field == "resource_pattern_type" and notes.version == 0):
            continue
        for value in values:
            shown = value if isinstance(value, int) or len(value) < 40 else f"{value[:10]}... of {len(value)}"
            await create(notes, f"{field}={shown}", binding(**fixed, **{field: value}))


@SCRIPTS.of(ApiKey.CREATE_ACLS, (0, 1, 2, 3))
async def fields_of_an_acl_on_a_topic(notes: Notes) -> None:
    await try_fields(notes)
    await describe(notes, "all")


@SCRIPTS.of(ApiKey.CREATE_ACLS, (1, 3))
async def names_of_every_type(notes: Notes) -> None:
    for kind in (TYPE.GROUP, TYPE.TRANSACTIONAL_ID, TYPE.DELEGATION_TOKEN, TYPE.USER):
        for pattern in (PATTERN.LITERAL, PATTERN.PREFIXED):
            for name in ("a", "a/b", "a/", "*", "", "User:a"):
                fields = {"resource_type": kind, "resource_pattern_type": pattern, "resource_name": name}
                about = f"{kind.name} {pattern.name} {name}"
                await create(notes, about, binding(**fields, operation=OPERATION.DESCRIBE))
    await describe(notes, "all")


@SCRIPTS.of(ApiKey.CREATE_ACLS, (0, 1, 3))
async def acls_on_the_cluster(notes: Notes) -> None:
    for name in ("kafka-cluster", "Kafka-cluster", "*", "", "kafka", "x/y"):
        cluster = {"resource_type": TYPE.CLUSTER, "resource_name": name, "operation": OPERATION.CREATE}
        await create(notes, name, binding(**cluster))
        if notes.version:
            await create(notes, f"{name}, prefixed", binding(**cluster, resource_pattern_type=PATTERN.PREFIXED))
    await describe(notes, "all")


@SCRIPTS.of(ApiKey.CREATE_ACLS, (3,))
async def every_operation_on_every_type(notes: Notes) -> None:
    for kind in (TYPE.TOPIC, TYPE.GROUP, TYPE.CLUSTER, TYPE.TRANSACTIONAL_ID, TYPE.DELEGATION_TOKEN, TYPE.USER):
        name = "kafka-cluster" if kind is TYPE.CLUSTER else "a"
        acls = [
            binding(resource_type=kind, resource_name=name, operation=operation)
            for operation in OPERATION
            if operation > 1
        ]
        await create(notes, kind.name, *acls)
    await describe(notes, "all")


@SCRIPTS.of(ApiKey.CREATE_ACLS, (0, 2, 3))
async def several_acls_of_which_some_are_wrong(notes: Notes) -> None:
    await create(notes, "none")
    await create(notes, "the same twice", binding(), binding())
    await create(notes, "the same again", binding())
    await create(notes, "a wrong principal between", binding(host="1"), binding(principal="x"), binding(host="2"))
    await create(notes, "a wrong name between", binding(host="3"), binding(resource_name="a/b"), binding(host="4"))
    await create(notes, "an empty name between", binding(host="5"), binding(resource_name=""), binding(host="6"))
    await create(notes, "ANY between", binding(host="7"), binding(operation=OPERATION.ANY), binding(host="8"))
    await create(notes, "UNKNOWN between", binding(host="9"), binding(operation=OPERATION.UNKNOWN))
    await create(notes, "another cluster", binding(host="10"), binding(resource_type=TYPE.CLUSTER, resource_name="x"))
    await create(notes, "allowed and denied", binding(host="11"), binding(host="11", permission_type=PERMISSION.DENY))
    await describe(notes, "all")


MANY = (
    "+READ TOPIC abc; +WRITE TOPIC abc; -READ TOPIC abc from=10.9.8.7; +READ TOPIC abc by=User:bob; +READ TOPIC ab~; "
    "+READ TOPIC a~; +ALL TOPIC *; +READ TOPIC *~; +DESCRIBE GROUP abc; +READ GROUP ab~; +DELETE GROUP *; "
    "+ALTER CLUSTER; -CREATE CLUSTER by=User:*; +WRITE TRANSACTIONAL_ID abc; +WRITE TRANSACTIONAL_ID a~; "
    "+CREATE_TOKENS USER abc; +DESCRIBE DELEGATION_TOKEN abc; +READ TOPIC abcd; +READ TOPIC abc from=127.0.0.1"
)
FILTERS: dict[str, list[Any]] = {
    "resource_type_filter": [0, 2, 3, 4, 5, 6, 7, 9, -1],
    "resource_name_filter": ["abc", "abcd", "ab", "a", "*", "", "kafka-cluster", "a/b", "nothing"],
    "pattern_type_filter": [0, 2, 3, 4, 9, -1],
    "principal_filter": ["User:alice", "User:bob", "User:*", "alice", "", "User:", "user:alice", "User:nobody"],
    "host_filter": ["*", "127.0.0.1", "10.9.8.7", "", "no host"],
    "operation": [0, *range(2, 15), 99, -1],
    "permission_type": [0, 2, 3, 9, -1],
}


async def add_many(notes: Notes) -> None:
    creations = creations_of(MANY, str)
    await notes.stage.prepared(ApiKey.CREATE_ACLS, 3, {"creations": creations})


def filters(version: int) -> list[tuple[str, Document]]:
    """Filters by one field, and by a name with each way to match it."""
    chosen = [{field: value} for field, values in FILTERS.items() for value in values]
    names = ("abc", "ab", "abx", "*", "kafka-cluster")
    chosen += [
        {"resource_name_filter": name, "pattern_type_filter": pattern, "resource_type_filter": kind}
        for name in names
        for pattern in (PATTERN.ANY, PATTERN.MATCH, PATTERN.LITERAL, PATTERN.PREFIXED)
        for kind in (TYPE.ANY, TYPE.TOPIC, TYPE.CLUSTER)
    ]
    if version == 0:
        chosen = [fields for fields in chosen if "pattern_type_filter" not in fields]
    return [
        (" ".join(f"{key}={int_or_text(value)}" for key, value in one.items()), acl_filter(**one)) for one in chosen
    ]


def int_or_text(value: Any) -> Any:
    return int(value) if isinstance(value, int) else value


@SCRIPTS.of(ApiKey.DESCRIBE_ACLS, (0, 1, 3))
async def filters_of_every_kind(notes: Notes) -> None:
    await add_many(notes)
    for about, document in [("all", acl_filter()), *filters(notes.version)]:
        await notes.ask(about, ApiKey.DESCRIBE_ACLS, document, pick=found)


@SCRIPTS.of(ApiKey.DELETE_ACLS, (0, 1, 3))
async def deletions_by_filters_of_every_kind(notes: Notes) -> None:
    for about, document in [("all", acl_filter()), *filters(notes.version)]:
        await add_many(notes)
        await notes.ask(about, ApiKey.DELETE_ACLS, {"filters": [document]}, pick=deleted)


@SCRIPTS.of(ApiKey.DELETE_ACLS, (0, 2, 3))
async def several_filters_at_once(notes: Notes) -> None:
    cases: dict[str, list[Document]] = {
        "none": [],
        "the same twice": [{"principal_filter": "User:bob"}, {"principal_filter": "User:bob"}],
        "one within another": [{"resource_type_filter": TYPE.GROUP}, {"resource_name_filter": "abc"}, {}],
        "one that finds nothing": [{"resource_name_filter": "nothing"}, {"principal_filter": "User:bob"}],
        "UNKNOWN between": [{"principal_filter": "User:bob"}, {"operation": 0}, {"host_filter": "10.9.8.7"}],
        "a wrong principal between": [{"host_filter": "10.9.8.7"}, {"principal_filter": "x"}, {"host_filter": "*"}],
    }
    for about, chosen in cases.items():
        await add_many(notes)
        asked = [acl_filter(**fields) for fields in chosen]
        await notes.ask(about, ApiKey.DELETE_ACLS, {"filters": asked}, pick=deleted)
        await describe(notes, f"what is left of {about}")


CAROLS = (
    binding(resource_name="carols"),
    binding(resource_name="carols", operation=OPERATION.ANY),
    binding(resource_type=TYPE.GROUP, resource_name="carols"),
)
NEVER = acl_filter(resource_name_filter="nothing")
OF_ALICE = acl_filter(principal_filter="User:alice")
for _api, _needs, _document, _pick in (
    (ApiKey.CREATE_ACLS, "ALTER CLUSTER", {"creations": list(CAROLS)}, results),
    (ApiKey.DESCRIBE_ACLS, "DESCRIBE CLUSTER", NEVER, None),
    (ApiKey.DELETE_ACLS, "ALTER CLUSTER", {"filters": [NEVER, OF_ALICE]}, deleted),
):
    CASES.add(
        "an administrator",
        _api,
        (0, 1, 2, 3),
        _needs,
        always(_document),
        ("+ALTER TOPIC *; +DESCRIBE TOPIC *",),
        pick=_pick,
        prepare=lambda names, stage: stage.drop_acls(),
        is_fresh=True,
    )
for _api, _document in ((ApiKey.CREATE_ACLS, {"creations": []}), (ApiKey.DELETE_ACLS, {"filters": []})):
    CASES.add("nothing", _api, (3,), "ALTER CLUSTER", always(_document))
