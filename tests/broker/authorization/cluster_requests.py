"""Settings, credentials, the cluster's description, and requests between brokers."""

from __future__ import annotations

from typing import Any

from odradek.protocol.api_keys import ApiKey
from odradek.protocol.wire_codes import ConfigOperation, ConfigResourceType
from tests.beside_kafka.documents import Document
from tests.broker.authorization.case import Cases, always

CASES = Cases()
TOPIC, BROKER, LOGGER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER
CLIENT_METRICS, GROUP = 16, 32
EVERY_KIND = ((TOPIC, "there"), (TOPIC, "other"), (TOPIC, "none"), (BROKER, "0"), (BROKER, ""), (LOGGER, "0"))
SETTINGS: dict[int, str] = {TOPIC: "cleanup.policy", BROKER: "log.cleaner.threads", LOGGER: "kafka"}
VALUES: dict[int, str] = {TOPIC: "compact", BROKER: "1", LOGGER: "INFO"}
CONFIG_NEEDS = "{0} TOPIC there; {0} TOPIC none; {0} CLUSTER"


def describe_configs(*resources: tuple[int, str], **more: Any) -> Document:
    asked = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": [SETTINGS.get(kind, "none")]}
        for kind, name in resources
    ]
    return {"resources": asked, **more}


CASES.add(
    "every kind of resource",
    ApiKey.DESCRIBE_CONFIGS,
    (0, 1, 3, 4),
    CONFIG_NEEDS.format("DESCRIBE_CONFIGS"),
    lambda names, stage: describe_configs(
        (TOPIC, "there"), (TOPIC, "other"), (TOPIC, "none"), (BROKER, "0"), (LOGGER, "0")
    ),
    ("+DESCRIBE TOPIC there; +DESCRIBE CLUSTER", "+ALTER_CONFIGS TOPIC none; +ALTER_CONFIGS CLUSTER"),
)
CASES.add(
    "resources that are wrong",
    ApiKey.DESCRIBE_CONFIGS,
    (4,),
    "DESCRIBE_CONFIGS CLUSTER; DESCRIBE_CONFIGS TOPIC elsewhere",
    lambda names, stage: describe_configs((BROKER, "x"), (BROKER, "7"), (LOGGER, ""), (TOPIC, "bad/name"), (TOPIC, "")),
)
CASES.add(
    "a kind that does not exist",
    ApiKey.DESCRIBE_CONFIGS,
    (4,),
    "DESCRIBE_CONFIGS CLUSTER",
    lambda names, stage: describe_configs((9, "x"), (TOPIC, "there")),
)


def alter_configs(*resources: tuple[int, str], is_incremental: bool) -> Document:
    operation = {"config_operation": ConfigOperation.SET} if is_incremental else {}
    asked = [
        {
            "resource_type": kind,
            "resource_name": name,
            "configs": [{"name": SETTINGS.get(kind, "none"), "value": VALUES.get(kind, "1"), **operation}],
        }
        for kind, name in resources
    ]
    return {"resources": asked, "validate_only": True}


for _api, _versions, _kinds, _is in (
    (ApiKey.ALTER_CONFIGS, (0, 1, 2), EVERY_KIND[:5], False),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), EVERY_KIND, True),
):
    CASES.add(
        "every kind of resource",
        _api,
        _versions,
        CONFIG_NEEDS.format("ALTER_CONFIGS"),
        always(alter_configs(*_kinds, is_incremental=_is)),
        ("+ALTER TOPIC there; +ALTER CLUSTER", "+DESCRIBE_CONFIGS TOPIC none; +DESCRIBE_CONFIGS CLUSTER"),
    )
    CASES.add(
        "a kind that does not exist",
        _api,
        _versions[-1:],
        "ALTER_CONFIGS CLUSTER",
        always(alter_configs((9, "x"), (TOPIC, "there"), is_incremental=_is)),
    )

CASES.add(
    "a resource twice",
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    (1,),
    "ALTER_CONFIGS TOPIC there",
    lambda names, stage: alter_configs((TOPIC, "there"), (TOPIC, "there"), (TOPIC, "other"), is_incremental=True),
)
CASES.add(
    "the cluster",
    ApiKey.DESCRIBE_CLUSTER,
    (0, 1),
    "DESCRIBE CLUSTER",
    lambda names, stage: {"include_cluster_authorized_operations": False},
)
CASES.add(
    "authorized operations",
    ApiKey.DESCRIBE_CLUSTER,
    (0, 1),
    "DESCRIBE CLUSTER",
    lambda names, stage: {"include_cluster_authorized_operations": True},
    ("+ALL CLUSTER; -ALTER CLUSTER", "+ALL CLUSTER; -DESCRIBE CLUSTER", "+ALTER CLUSTER; +CREATE CLUSTER"),
)
CASES.add(
    "no update",
    ApiKey.UPDATE_FEATURES,
    (0, 1),
    "ALTER CLUSTER",
    always({"feature_updates": []}),
    ("+DESCRIBE CLUSTER; +CREATE CLUSTER; +ALTER_CONFIGS CLUSTER", "+ALL CLUSTER; -ALTER CLUSTER"),
)
CASES.add(
    "all quotas",
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    (0, 1),
    "DESCRIBE_CONFIGS CLUSTER",
    always({"components": [], "strict": False}),
    ("+DESCRIBE CLUSTER; +ALTER_CONFIGS TOPIC *", "+DESCRIBE_CONFIGS TOPIC *"),
)
CASES.add(
    "quotas of two kinds that exclude each other",
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    (1,),
    "DESCRIBE_CONFIGS CLUSTER",
    always(
        {
            "components": [
                {"entity_type": "user", "match_type": 2, "match": None},
                {"entity_type": "ip", "match_type": 0, "match": "10.0.0.1"},
            ],
            "strict": True,
        }
    ),
)
for _name, _users in (("two users", [{"name": "alice"}, {"name": "nobody"}]), ("no user", [])):
    CASES.add(
        _name,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        (0,),
        "DESCRIBE CLUSTER",
        always({"users": _users}),
        ("+DESCRIBE USER alice",),
    )
CASES.add(
    "a deletion, an addition and wrong ones",
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    (0,),
    "ALTER CLUSTER",
    lambda names, stage: {
        "deletions": [{"name": "nobody", "mechanism": 1}],
        "upsertions": [
            {"name": "someone", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32},
            {"name": "another", "mechanism": 1, "iterations": 1, "salt": b"salt", "salted_password": b"p" * 32},
            {"name": "", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32},
        ],
    },
    ("+ALTER USER someone", "+ALL USER *"),
)

STALE = {"controller_id": 0, "controller_epoch": -1, "broker_epoch": -1}
NO_BROKER = {"broker_id": 99, "broker_epoch": 5}
OF_BROKERS: tuple[tuple[ApiKey, tuple[int, ...], Document], ...] = (
    (ApiKey.LEADER_AND_ISR, (1, 5, 7), {**STALE, "type": 1}),
    (ApiKey.STOP_REPLICA, (1, 3, 4), STALE),
    (ApiKey.UPDATE_METADATA, (5, 7, 8), STALE),
    (ApiKey.CONTROLLED_SHUTDOWN, (1, 3), NO_BROKER),
    (ApiKey.ALTER_PARTITION, (0, 3), {**NO_BROKER, "topics": []}),
    (ApiKey.ALLOCATE_PRODUCER_IDS, (0,), NO_BROKER),
)
for _api, _of, _document in OF_BROKERS:
    CASES.add(
        "a request of a broker",
        _api,
        _of,
        "CLUSTER_ACTION CLUSTER",
        always(_document),
        ("+CLUSTER_ACTION CLUSTER; -DESCRIBE CLUSTER", "+CLUSTER_ACTION TOPIC *"),
    )
SOFTWARE = {"client_software_name": "a", "client_software_version": "1"}
CASES.add("the versions", ApiKey.API_VERSIONS, (0, 3, 4), "", always(SOFTWARE), ("-ALL CLUSTER",))
CASES.add("a login again", ApiKey.SASL_HANDSHAKE, (0, 1), "", always({"mechanism": "PLAIN"}))
CASES.add("a login again", ApiKey.SASL_AUTHENTICATE, (0, 2), "", always({"auth_bytes": b""}))
