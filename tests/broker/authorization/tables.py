"""All cases and scripts, in the order in which they are recorded."""

from __future__ import annotations

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

TABLES: dict[str, list[Case]] = {
    "records": data_requests.CASES,
    "topics": topic_requests.CASES,
    "groups": group_requests.CASES,
    "transactions": transaction_requests.CASES,
    "the cluster": cluster_requests.CASES,
    "ACLs": acl_scripts.CASES,
}
"""The cases of a table need a broker that has got no others: some see what earlier ones have left."""
CASES = [case for table in TABLES.values() for case in table]
SCRIPTS: list[Script] = [*acl_scripts.SCRIPTS, *other_scripts.SCRIPTS]
