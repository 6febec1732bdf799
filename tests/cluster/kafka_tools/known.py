"""What Kafka's tools print otherwise of our brokers, each with its reason. docs/differences.md lists them for users."""

from __future__ import annotations

import re

from tests.beside_kafka.known import Known
from tests.scenarios.same_as_kafka.changed_settings import CHANGED

KNOWN = [
    Known(
        "show the brokers' APIs",
        r"out (LeaderAndIsr|StopReplica|UpdateMetadata|ControlledShutdown|AlterPartition)\(\d+\): .*",
        "between brokers, only the versions of Kafka 3.0 are served",
    ),
    Known(
        "show the brokers' APIs",
        r"out (\w+DelegationToken|AlterClientQuotas|UpdateFeatures|Envelope|ConsumerGroup\w+)\(\d+\): .*",
        "APIs that are not served",
    ),
    Known("describe all settings of a broker", r"out odradek\..*", "settings of our own"),
    Known(
        "describe all settings of a (broker|topic)",
        rf"out ({'|'.join(map(re.escape, sorted(CHANGED)))})=.*",
        "the settings and their defaults are those of Kafka 4.4",
    ),
    Known(
        "describe all settings of a broker",
        r"out inter\.broker\.protocol\.version=.*",
        "the default is 3.0: it is the only protocol between brokers that Odradek has",
    ),
    Known(
        r"change a (topic's )?setting to a bad value|throttle replicas that are none|"
        r"throttle a broker to (less than nothing|no number)",
        r"err .*\.Invalid(Request|Configuration)Exception: .*",
        "invalid values are described in words of our own, the same as in the errors at the start",
    ),
    Known(
        "elect .*",
        r"(out|err) .*LeaderNotAvailableException: .*|(out|err) .*EligibleLeadersNotAvailableException: .*",
        "the message is the reason; Kafka's has names of its classes",
    ),
    Known(
        r"give (users|clients|ips) a quota|describe (users|clients|ips) with a quota|"
        r"take the quota of (users|clients|ips)",
        ".*",
        "quotas of clients cannot be set",
    ),
]
