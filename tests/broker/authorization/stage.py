"""A broker whose clients are the super user admin, and alice, whose ACLs change from request to request.

Its topics are there (two partitions) and other (one); its groups with committed offsets are group and othergroup; its
transactional ids are tx and othertx. Nothing else exists: none, nogroup and notx are names for what does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from odradek.broker.security.sasl.scram import MECHANISMS
from odradek.clients.recording.comparison import ZERO_ID, comparable
from odradek.protocol.api_keys import ApiKey
from odradek.protocol.documents import to_document
from odradek.protocol.messages.registry import request_class
from tests.beside_kafka.documents import RULES, Document, batch, message_of
from tests.broker.authorization.acl_states import Names, creations_of
from tests.patience import PATIENCE_S, until
from tests.wire.frames import request_bytes, response_of
from tests.wire.raw_client import RawClient

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PREFIX = "listener.name.sasl_plaintext."
SETTINGS = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": ",".join(["PLAIN", *MECHANISMS]),
    f"{PREFIX}plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} required username="admin" password="admin-secret" '
        'user_admin="admin-secret" user_alice="alice-secret" user_bob="bob-secret";'
    ),
    **{f"{PREFIX}{name.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;" for name in MECHANISMS},
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "auto.create.topics.enable": "true",
    "broker.id": "0",
    "connection.failed.authentication.delay.ms": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}
RETRIED = {14, 15, 19, 51}
"""COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_ENOUGH_REPLICAS (Kafka could not yet ask about a
transaction) and CONCURRENT_TRANSACTIONS: clients send such requests again."""
RETRIES = 200
RETRY_S = 0.05
LISTED_SETTING = "cleanup.policy"
FIXED = ("there", "other", "none", "group", "nogroup")
"""Names that are the same in all cases."""
WORLD = ("there", "other", "group", "othergroup", "tx", "othertx")
ANY = 1
ID_OF = "id of "
IDENTIFIED = "11111111-2222-3333-4444-555555555555"
"""The id of a topic that does not exist."""
NOTHING_ANSWERED = "nothing"


COUNTS = (
    *(
        "BaseOffset",
        "EndOffset",
        "HighWatermark",
        "LastStableOffset",
        "LowWatermark",
        "Offset",
        "PartitionSize",
        "ProducerEpoch",
    ),
    *("TotalBytes", "TransactionStartTimeMs", "UsableBytes"),
)
"""Fields whose values depend on what other cases have done."""


def _count(value: Any) -> Any:
    return "N" if isinstance(value, int) and value >= 0 else value


def _listed_setting(configs: Any) -> Any:
    """Of the settings of a topic that was created, one."""
    return [each for each in configs if each["Name"] == LISTED_SETTING] if isinstance(configs, list) else configs


OWN_RULES = {
    **{key: rule for key, rule in RULES.items() if not key.endswith("ErrorMessage")},
    **dict.fromkeys(COUNTS, _count),
    "TopicId": lambda value: value if value in (ZERO_ID, IDENTIFIED) or value.startswith(ID_OF) else "ID",
    "ApiKeys": lambda value: "APIS",
    "Records": lambda value: "RECORDS" if value else value,
    "Configs": _listed_setting,
}


class Client:
    """A connection that belongs to a principal from the beginning."""

    def __init__(self, port: int, user: str) -> None:
        self._port = port
        self._user = user
        self._connections = contextlib.AsyncExitStack()
        self._raw: RawClient | None = None

    async def close(self) -> None:
        await self._connections.aclose()
        self._raw = None

    async def ask(
        self,
        api: ApiKey,
        version: int,
        document: Document,
        *,
        is_answered: bool = True,
        patience_s: float = PATIENCE_S,
    ) -> Document | None:
        """The answer as a document, None if the connection has ended instead or nothing came.

        An empty one if none is awaited."""
        raw = self._raw or await self._connected()
        request = message_of(request_class(api), document)
        raw.send(request_bytes(request, version))
        if not is_answered:
            return {}
        frame = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                frame = await raw.frame()
        if frame is None:
            await self.close()
            return None
        return to_document(response_of(frame, request, version), version)

    async def settled(self, api: ApiKey, version: int, document: Document) -> Document | None:
        """The answer that is left when requests are sent again as long as clients do so."""
        for _ in range(RETRIES):
            answer = await self.ask(api, version, document)
            if not RETRIED & set(error_codes(answer)):
                break
            await asyncio.sleep(RETRY_S)
        return answer

    async def _connected(self) -> RawClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._connections.callback(writer.close)
        self._raw = RawClient(reader, writer)
        await self._raw.handshake()
        answer = await self._raw.token(f"\0{self._user}\0{self._user}-secret".encode())
        assert answer.error_code == 0, answer
        return self._raw


def error_codes(answer: Any) -> list[int]:
    """All error codes in an answer."""
    if isinstance(answer, list):
        return [code for item in answer for code in error_codes(item)]
    if isinstance(answer, dict):
        own = [value for key, value in answer.items() if key.endswith("ErrorCode")]
        return own + [code for value in answer.values() for code in error_codes(value)]
    return []


class Stage:
    """`admin` and `alice` are connected to the broker. `producers`: id and epoch by transactional id. `ids`: the ids of
    topics by name.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.admin = Client(port, "admin")
        self.alice = Client(port, "alice")
        self.producers: dict[str, Document] = {}
        self.ids: dict[str, str] = {}
        self._acls: list[dict[str, Any]] = []
        self._cases = 0

    async def close(self) -> None:
        await self.admin.close()
        await self.alice.close()

    def new_names(self) -> Names:
        """Names that only one case uses, except those that are FIXED and the beginnings of these."""
        self._cases += 1
        prefix = f"n{self._cases}-"
        return lambda name: name if any(fixed.startswith(name) for fixed in FIXED) else prefix + name

    async def prepared(self, api: ApiKey, version: int, document: Document) -> Document:
        """A request of admin's that must succeed."""
        answer = await self.admin.settled(api, version, document)
        assert answer is not None, api
        assert not any(error_codes(answer)), (api, document, answer)
        return answer

    async def build(self) -> None:
        """Makes what exists at the beginning, when the broker has heard of itself."""
        await until(self._knows_itself)
        await self.create_topic("there", 2)
        await self.create_topic("other", 1)
        for group in ("group", "othergroup"):
            await self.commit(group, ("there", "other"))
        for version in (0, 2):  # in ZooKeeper, and in the topic
            await self.commit("group", ("there",), (0, 1), version)
        for name in ("tx", "othertx"):
            await self.init_producer(name)
        records = batch(b"value")
        data = [{"name": name, "partition_data": [{"index": 0, "records": records}]} for name in ("there", "other")]
        await self.prepared(ApiKey.PRODUCE, 7, {"acks": -1, "timeout_ms": 30_000, "topic_data": data})

    async def _knows_itself(self) -> bool:
        answer = await self.prepared(ApiKey.METADATA, 9, {"topics": []})
        return bool(answer["Brokers"])

    async def create_topic(self, name: str, partitions: int = 1) -> None:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        await self.prepared(ApiKey.CREATE_TOPICS, 4, {"topics": [topic], "timeout_ms": 30_000})
        answer = await self.prepared(ApiKey.METADATA, 12, {"topics": [{"name": name}]})
        self.ids[name] = answer["Topics"][0]["TopicId"]

    async def commit(
        self, group: str, topics: tuple[str, ...], numbers: tuple[int, ...] = (0,), version: int = 2
    ) -> None:
        await self.prepared(ApiKey.FIND_COORDINATOR, 1, {"key": group, "key_type": 0})
        partitions = [{"partition_index": number, "committed_offset": 5} for number in numbers]
        committed = [{"name": topic, "partitions": partitions} for topic in topics]
        nobody = {"generation_id_or_member_epoch": -1, "member_id": ""}
        await self.prepared(ApiKey.OFFSET_COMMIT, version, {"group_id": group, **nobody, "topics": committed})

    async def init_producer(self, name: str) -> None:
        await self.prepared(ApiKey.FIND_COORDINATOR, 1, {"key": name, "key_type": 1})
        asked = {"transactional_id": name, "transaction_timeout_ms": 600_000}
        answer = await self.prepared(ApiKey.INIT_PRODUCER_ID, 1, asked)
        self.producers[name] = {"producer_id": answer["ProducerId"], "producer_epoch": answer["ProducerEpoch"]}

    async def add_to_transaction(self, name: str, topic: str) -> None:
        """Adds a topic's first partition to the transaction of a producer."""
        producer = {f"v3_and_below_{key}": value for key, value in self.producers[name].items()}
        topics = [{"name": topic, "partitions": [0]}]
        asked = {**producer, "v3_and_below_transactional_id": name, "v3_and_below_topics": topics}
        await self.prepared(ApiKey.ADD_PARTITIONS_TO_TXN, 1, asked)

    async def set_acls(self, state: str, names: Names) -> None:
        """Makes the ACLs of a state the only ones."""
        wanted = creations_of(state, names)
        if wanted == self._acls:
            return
        if self._acls:
            await self.drop_acls()
        if wanted:
            await self.prepared(ApiKey.CREATE_ACLS, 3, {"creations": wanted})
        self._acls = wanted

    async def drop_acls(self) -> None:
        """Deletes all ACLs."""
        anything = {"resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY}
        anything |= {"principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY}
        await self.prepared(ApiKey.DELETE_ACLS, 3, {"filters": [anything]})
        self._acls = []


@contextlib.asynccontextmanager
async def stage_at(port: int) -> AsyncIterator[Stage]:
    """Yields the stage of a broker that has nothing yet."""
    stage = Stage(port)
    try:
        async with asyncio.timeout(60 * PATIENCE_S):
            await stage.build()
            yield stage
    finally:
        await stage.close()


def noted(answer: Document | None, ids: Mapping[str, str]) -> Any:
    """What is recorded of an answer. `ids`: those of topics by name."""
    if answer is None:
        return NOTHING_ANSWERED
    named = {topic_id: f"{ID_OF}{name}" for name, topic_id in ids.items()}
    return comparable(plain(answer, named), OWN_RULES)


def only_of(answer: Document | None, names: Names) -> Document | None:
    """Without what other cases have created, for answers that list everything."""
    if answer is None:
        return None
    known = {*WORLD, *(names(name) for name in WORLD)}
    return {
        key: [item for item in value if _identity(item) is None or _identity(item) in known]
        if isinstance(value, list)
        else value
        for key, value in answer.items()
    }


def _identity(item: Any) -> str | None:
    keys = ("Name", "TransactionalId", "GroupId") if isinstance(item, Mapping) else ()
    return next((item[key] for key in keys if key in item), None)


def plain(value: Any, named: Mapping[str, str]) -> Any:
    """Without the prefixes of `Stage.new_names`, the ids of topics, and what is the same in all answers."""
    if isinstance(value, list):
        return [plain(item, named) for item in value]
    if isinstance(value, dict):
        return {key: plain(item, named) for key, item in value.items() if key != "ThrottleTimeMs"}
    return without_own_texts(named.get(value, value))


def without_own_texts(value: Any) -> Any:
    """Without the prefixes of `Stage.new_names`, and what Java prints of a request."""
    if not isinstance(value, str):
        return value
    return re.sub(r"^Request Request\(.*\) is not", "Request is not", re.sub(r"\bn\d+-", "", value))
