"""Connections and sessions whose ACLs change, and requests that Apache Kafka does not answer."""

from __future__ import annotations

from typing import Any

from odradek.protocol.api_keys import ApiKey
from tests.beside_kafka.documents import Document, batch
from tests.broker.authorization.cluster_requests import TOPIC, alter_configs
from tests.broker.authorization.data_requests import fetch, produce
from tests.broker.authorization.script import Notes, Scripts
from tests.broker.authorization.stage import IDENTIFIED

SCRIPTS = Scripts()
SILENCE_S = 3


def itself(name: str) -> str:
    return name


async def is_open(notes: Notes, about: str) -> None:
    """Notes whether alice's connection still answers."""
    await notes.ask(about, ApiKey.METADATA, {"topics": []}, version=9, client=notes.stage.alice, pick=lambda _: "open")


@SCRIPTS.of(ApiKey.PRODUCE, (3, 9, 11))
async def records_that_need_no_answer(notes: Notes) -> None:
    alice = notes.stage.alice
    for state in ("+WRITE TOPIC *", "+WRITE TOPIC there", "", "+WRITE TOPIC other"):
        await notes.stage.set_acls(state, itself)
        request = produce(batch(b"v"), "there", "other", acks=0)
        await notes.ask(state, ApiKey.PRODUCE, request, client=alice, is_answered=False)
        await is_open(notes, f"afterwards, {state}")


async def fetch_more(
    notes: Notes, about: str, session: int, epoch: int, topics: tuple[str, ...] = (), **more: Any
) -> None:
    request = fetch(notes.stage, *topics, session_id=session, session_epoch=epoch, **more)
    await notes.ask(about, ApiKey.FETCH, request, client=notes.stage.alice)


@SCRIPTS.of(ApiKey.FETCH, (7, 12, 13, 17))
async def a_session_whose_acls_change(notes: Notes) -> None:
    alice = notes.stage.alice
    await notes.stage.set_acls("+READ TOPIC there", itself)
    first = fetch(notes.stage, "there", "other", "none", session_id=0, session_epoch=0)
    answer = await notes.ask("the first", ApiKey.FETCH, first, client=alice)
    session = answer["SessionId"] if answer else 0
    await fetch_more(notes, "unchanged", session, 1)
    await notes.stage.set_acls("+READ TOPIC there; +READ TOPIC other", itself)
    await fetch_more(notes, "with one more", session, 2)
    await notes.stage.set_acls("", itself)
    await fetch_more(notes, "without ACLs", session, 3)
    await fetch_more(notes, "without ACLs again", session, 4)
    await fetch_more(notes, "asked again without ACLs", session, 5, ("there",))
    await notes.stage.set_acls("+READ TOPIC *", itself)
    await fetch_more(notes, "with all", session, 6)
    await fetch_more(notes, "with all again", session, 7)
    forgotten = [{"topic": "there", "topic_id": notes.stage.ids["there"], "partitions": [0]}]
    await fetch_more(notes, "with one forgotten", session, 8, forgotten_topics_data=forgotten)
    await notes.stage.set_acls("", itself)
    await fetch_more(notes, "without ACLs in the end", session, 9)
    await fetch_more(notes, "the session ends", session, -1, ("there",))


@SCRIPTS.of(ApiKey.FETCH, (7, 13))
async def a_session_of_another_principal(notes: Notes) -> None:
    first = fetch(notes.stage, "there", session_id=0, session_epoch=0)
    answer = await notes.ask("admin's", ApiKey.FETCH, first)
    session = answer["SessionId"] if answer else 0
    await fetch_more(notes, "alice's", session, 1)
    await notes.stage.set_acls("+CLUSTER_ACTION CLUSTER", itself)
    await fetch_more(notes, "alice's with more rights", session, 2)


@SCRIPTS.of(ApiKey.HEARTBEAT, (4,))
async def a_member_whose_acls_change(notes: Notes) -> None:
    stage, group = notes.stage, "members"
    await stage.set_acls(f"+READ GROUP {group}", itself)
    joining: Document = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    joined = await stage.alice.settled(ApiKey.JOIN_GROUP, 3, joining)
    assert joined is not None
    assert joined["ErrorCode"] == 0
    me = {"group_id": group, "generation_id": joined["GenerationId"], "member_id": joined["MemberId"]}
    sync = {**me, "assignments": [{"member_id": me["member_id"], "assignment": b"a"}]}
    for state in (f"+READ GROUP {group}", "", f"+DESCRIBE GROUP {group}", f"+READ GROUP {group}"):
        await stage.set_acls(state, itself)
        for api, version, document in (
            (ApiKey.SYNC_GROUP, 3, sync),
            (ApiKey.HEARTBEAT, 4, me),
            (ApiKey.OFFSET_COMMIT, 8, {**me, "generation_id_or_member_epoch": me["generation_id"], "topics": []}),
            (ApiKey.JOIN_GROUP, 3, {**joining, "member_id": me["member_id"]}),
        ):
            asked = {
                key: value
                for key, value in document.items()
                if api is not ApiKey.OFFSET_COMMIT or key != "generation_id"
            }
            about = f"{api.name}, {state}"
            await notes.ask(
                about, api, asked, version=version, client=stage.alice, pick=lambda answer: answer.get("ErrorCode")
            )
    leaving = {"group_id": group, "members": [{"member_id": me["member_id"]}]}
    await stage.set_acls("", itself)
    await notes.ask("leaving without ACLs", ApiKey.LEAVE_GROUP, leaving, version=3, client=stage.alice)
    await stage.set_acls(f"+READ GROUP {group}", itself)
    await notes.ask("leaving", ApiKey.LEAVE_GROUP, leaving, version=3, client=stage.alice)


@SCRIPTS.of(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, (0,))
async def all_users(notes: Notes) -> None:
    for state in ("+DESCRIBE CLUSTER", ""):
        await notes.stage.set_acls(state, itself)
        await notes.ask(
            state,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
            {"users": None},
            client=notes.stage.alice,
            patience_s=SILENCE_S,
        )


@SCRIPTS.of(ApiKey.ALTER_CONFIGS, (2,))
async def a_resource_that_is_named_twice(notes: Notes) -> None:
    twice = alter_configs((TOPIC, "there"), (TOPIC, "there"), (TOPIC, "other"), is_incremental=False)
    for state in ("+ALTER_CONFIGS TOPIC there", ""):
        await notes.stage.set_acls(state, itself)
        await notes.ask(state, ApiKey.ALTER_CONFIGS, twice, client=notes.stage.alice, patience_s=SILENCE_S)


@SCRIPTS.of(ApiKey.FIND_COORDINATOR, (6,))
async def coordinators_of_share_groups(notes: Notes) -> None:
    keys = {"coordinator_keys": ["group:AAAAAAAAAAAAAAAAAAAAAQ:0"], "key_type": 2}
    for state in ("", "+CLUSTER_ACTION CLUSTER", "+DESCRIBE GROUP *"):
        await notes.stage.set_acls(state, itself)
        await notes.ask(state, ApiKey.FIND_COORDINATOR, keys, client=notes.stage.alice)


@SCRIPTS.of(ApiKey.DESCRIBE_GROUPS, (5,))
async def operations_of_the_super_user(notes: Notes) -> None:
    asked: Document = {"groups": ["group", "nogroup"], "include_authorized_operations": True}
    await notes.ask("groups", ApiKey.DESCRIBE_GROUPS, asked)
    cluster = {"include_cluster_authorized_operations": True}
    await notes.ask("cluster", ApiKey.DESCRIBE_CLUSTER, cluster, version=0)
    topics = [{"name": "there"}, {"name": "none"}]
    included = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    wanted = {"topics": topics, "allow_auto_topic_creation": False, **included}
    await notes.ask("topics", ApiKey.METADATA, wanted, version=10)
    identified = {**wanted, "topics": [{"topic_id": IDENTIFIED}]}
    await notes.ask("an unknown id", ApiKey.METADATA, identified, version=12)
