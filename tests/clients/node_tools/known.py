"""What the tools of Kafka 4.4 print otherwise of our node, each with its reason. docs/differences.md lists them."""

from __future__ import annotations

from tests.beside_kafka.known import Known

IN_OUR_WORDS = "the message says the same in words of our own"
KNOWN = [
    Known("list the endpoints of controllers", r"err .*MismatchedEndpointTypeException: .*", IN_OUR_WORDS),
    Known(
        r"upgrade a feature (too far|that is not there)|upgrade to a release", r"out Could not upgrade .*", IN_OUR_WORDS
    ),
    Known(r"create a topic on .*|take partitions away", r"out Error while executing topic command : .*", IN_OUR_WORDS),
    Known(
        r".*: change a setting to a bad value|change a group's setting beyond its bounds",
        r"err .*\.Invalid(Request|Configuration)Exception: .*",
        IN_OUR_WORDS,
    ),
    Known("subscribe too often", r"out Error while executing client metrics command : .*", IN_OUR_WORDS),
    Known("elect a leader of what is not there", r"(out|err) .*UnknownTopicOrPartitionException: .*", IN_OUR_WORDS),
    Known("describe a group of a protocol that is off", r"(out|err) .*GroupIdNotFoundException: .*", IN_OUR_WORDS),
    Known("list ACLs without an authorizer", r"out .*SecurityDisabledException: .*", IN_OUR_WORDS),
    Known(
        "unregister a broker that is not there", ".*", "there is no KRaft: brokers are not registered by controllers"
    ),
    Known(r"describe the (replication of the )?quorum", ".*", "there is no KRaft, and no quorum"),
    Known(
        r"describe the features.*",
        r"out Feature: (eligible\.leader\.replicas|share|streams)\.version .*",
        "features that are not built",
    ),
    Known(
        "show the APIs",
        r"out \w+\(\d+\): .*",
        "APIs that are not served, and versions that Kafka 3.9 had in addition",
    ),
    Known(
        r".*(share|Share).*|.*: describe as a streams group|streams: .*",
        r"(out|err) .*(The version of API is not supported|The node does not support|"
        r"not support the share group protocol).*",
        "a node without these features does not list their APIs, so the client itself refuses: with the same exception",
    ),
    Known(
        r".* delegation tokens?",
        r"err .*Unsupported(ByAuthentication|Version)Exception: .*",
        "delegation tokens are not built",
    ),
    Known(r"(users|clients|ips): .*", ".*", "quotas of clients cannot be set"),
    Known(
        "topics: describe all",
        r"out message\.timestamp\.difference\.max\.ms=.*",
        "a setting that 4.x has dropped takes effect here, and is shown",
    ),
    Known(
        "read by GroupMetadataMessageFormatter",
        r'out .*"generation":0,"protocol":null,.*',
        "Kafka writes an empty record of a group when a client is told its id",
    ),
    Known(
        r"read by (Offsets|GroupMetadata)MessageFormatter",
        r"err Processed a total of \d+ messages",
        "the same: there are more of them",
    ),
    Known(
        "VerifiableConsumer: consumer",
        r'out .*"partitions_assigned","partitions":\[\].*',
        "the first response may come before its member has been assigned something",
        is_a_race=True,
    ),
]
