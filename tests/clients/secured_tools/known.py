"""What Kafka's tools print otherwise of our broker with ACLs, each with its reason."""

from __future__ import annotations

from tests.beside_kafka.known import Known

KNOWN = [
    Known(
        ".* without the right|create a topic .*|add partitions .*",
        r"(out|err) (.*Exception: |Error while executing topic command : )?"
        r"(Topic authorization failed\.|The topic authorization is failed\.|Cluster authorization failed\.|"
        r"Authorization failed\.|Request is not authorized\.|Not authorized for the .*)",
        "a denial says for what; Kafka's says only that it is one, in several ways",
    ),
    Known(
        "allow on a name with a slash",
        r"out .*InvalidRequestException: Failed to create ACL.*",
        "the message says why",
    ),
]
