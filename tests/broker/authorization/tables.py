"""All cases and scripts, in the order in which they are recorded."""

from __future__ import annotations

from odradek.protocol.api_keys import ApiKey
from tests.broker.authorization import (
    acl_scripts,
    cluster_requests,
    data_requests,
    group_requests,
    other_scripts,
    topic_requests,
    transaction_requests,
)
from tests.broker.authorization.case import Case
from tests.broker.authorization.script import Script

CASES: list[Case] = [
    case
    for module in (
        data_requests,
        topic_requests,
        group_requests,
        transaction_requests,
        cluster_requests,
        acl_scripts,
    )
    for case in module.CASES
]
SCRIPTS: list[Script] = [*acl_scripts.SCRIPTS, *other_scripts.SCRIPTS]
APIS: list[ApiKey] = sorted({case.api for case in CASES})
