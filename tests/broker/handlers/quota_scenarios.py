"""Quotas of every kind of entity, and all filters of DescribeClientQuotas, with what brokers answer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from odradek.broker.metadata_store.interface import MetadataStore
from odradek.clients.network_client import NetworkClient
from odradek.protocol.documents import to_document
from odradek.protocol.messages.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from odradek.protocol.messages.scram import AlterUserScramCredentialsRequest

EXACT, DEFAULT, ANY = 0, 1, 2
USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCER, CONSUMER, PERCENTAGE = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
MUTATIONS, CONNECTIONS = "controller_mutation_rate", "connection_creation_rate"
FOLDERS = ("/config/users", "/config/clients", "/config/ips")

QUOTAS: list[tuple[dict[str, str | None], dict[str, float]]] = [
    ({USER: "alice"}, {PRODUCER: 1000.0, CONSUMER: 2e12, PERCENTAGE: 12.5, MUTATIONS: 0.1}),
    ({USER: "j\xfcrgen ~*+%/<default>"}, {PRODUCER: 1.0}),
    ({USER: None}, {PERCENTAGE: 1e7}),
    ({CLIENT_ID: "app"}, {CONSUMER: 7.0}),
    ({CLIENT_ID: "app/2"}, {CONSUMER: 8.0}),
    ({CLIENT_ID: None}, {MUTATIONS: 1e-5}),
    ({USER: "alice", CLIENT_ID: "app"}, {PRODUCER: 3.0}),
    ({USER: "alice", CLIENT_ID: None}, {PRODUCER: 4.0}),
    ({USER: "bob", CLIENT_ID: "app"}, {PRODUCER: 5.0}),
    ({USER: None, CLIENT_ID: "app"}, {PRODUCER: 6.0}),
    ({USER: None, CLIENT_ID: None}, {PRODUCER: 9.0}),
    ({IP: "10.0.0.1"}, {CONNECTIONS: 10.0}),
    ({IP: "127.0.0.9"}, {CONNECTIONS: 11.0}),
    ({IP: None}, {CONNECTIONS: 12.0}),
]
REMOVED: dict[str, str | None] = {USER: "carol"}
"""It had a quota."""
DAMAGED = {
    "a text": '{"version":1,"config":{"producer_byte_rate":"much"}}',
    "a text that Kafka does not look at": '{"version":1,"config":{"connection_creation_rate":"much","x":"y"}}',
    "no text": '{"version":1,"config":{"producer_byte_rate":""}}',
    "Java's numbers": '{"version":1,"config":{"producer_byte_rate":" 1d ","consumer_byte_rate":"-.5E+1f"}}',
    "more than numbers": '{"version":1,"config":{"producer_byte_rate":"Infinity","consumer_byte_rate":"-Infinity"}}',
    "Python's numbers": '{"version":1,"config":{"producer_byte_rate":"1_000"}}',
    "Python's infinity": '{"version":1,"config":{"producer_byte_rate":"inf"}}',
    "no settings": '{"version":1}',
    "no JSON": "{",
    "nothing": "",
}
"""Data of a user's entry."""


def component(kind: str, match_type: int, match: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


def _filters() -> Iterator[tuple[str, list[dict[str, Any]], bool]]:
    matches = {
        USER: [(EXACT, "alice"), (EXACT, "bob"), (EXACT, "nobody"), (EXACT, "carol"), (DEFAULT, None), (ANY, None)],
        CLIENT_ID: [(EXACT, "app"), (EXACT, "nothing"), (DEFAULT, None), (ANY, None)],
        IP: [(EXACT, "10.0.0.1"), (EXACT, "10.0.0.9"), (DEFAULT, None), (ANY, None)],
    }
    of = {kind: [component(kind, *match) for match in found] for kind, found in matches.items()}
    selections = [[], *([each] for each in (*of[USER], *of[CLIENT_ID], *of[IP]))]
    selections += [list(pair) for pair in product(of[USER], of[CLIENT_ID])]
    selections += [[component(CLIENT_ID, ANY), component(USER, ANY)]]
    selections += [[component(USER, EXACT, str(QUOTAS[1][0][USER]))], [component(IP, EXACT, "127.0.0.9")]]
    selections += [[component(USER, EXACT, "<default>")], [component(CLIENT_ID, EXACT, "app/2")]]
    selections += [[component(USER, match_type, "alice")] for match_type in (DEFAULT, ANY)]
    for components, strict in product(selections, (False, True)):
        named = ", ".join(f"{each['entity_type']} {each['match_type']} {each['match']}" for each in components)
        yield f"{'only' if strict else 'with'} {named or 'nothing'}", components, strict


WRONG = {
    "a type twice": [component(USER, ANY), component(USER, EXACT, "alice")],
    "a client twice": [component(CLIENT_ID, ANY), component(CLIENT_ID, ANY)],
    "an address twice": [component(IP, ANY), component(IP, ANY)],
    "an address and a user": [component(IP, ANY), component(USER, ANY)],
    "a client and an address": [component(CLIENT_ID, ANY), component(IP, ANY)],
    "no type": [component("", ANY)],
    "another type": [component("group", ANY)],
    "another type after one that is twice": [component(USER, ANY), component(USER, ANY), component("group", ANY)],
    "types of Kafka's tools": [component("users", ANY)],
    "an unknown match type": [component(USER, 3, "alice")],
    "a match type below zero": [component(USER, -1, "alice")],
    "an exact match without a name": [component(USER, EXACT, None)],
}
IMPOSSIBLE = {f"the name {name!r}": [component(USER, EXACT, name)] for name in ("", ".", "..")}
"""Names that ZooKeeper does not take."""
REQUESTS: dict[str, tuple[DescribeClientQuotasRequest, int]] = {
    name: (
        DescribeClientQuotasRequest(
            components=[DescribeClientQuotasRequest.ComponentData(**each) for each in components], strict=strict
        ),
        version,
    )
    for version, name, components, strict in [
        *((1, name, components, strict) for name, components, strict in _filters()),
        (0, "version 0", [], False),
        (0, "version 0, a type twice", WRONG["a type twice"], False),
        *((1, f"{how} {name}", wrong, how == "only") for name, wrong in WRONG.items() for how in ("with", "only")),
        *((1, f"{how} {name}", wrong, how == "only") for name, wrong in IMPOSSIBLE.items() for how in ("with", "only")),
    ]
}


async def store_quotas(client: NetworkClient) -> None:
    """Sets the quotas at a broker of Apache Kafka."""
    entry, entity, operation = (
        AlterClientQuotasRequest.EntryData,
        AlterClientQuotasRequest.EntityData,
        AlterClientQuotasRequest.OpData,
    )

    def altered(names: dict[str, str | None], quotas: dict[str, float], remove: bool = False) -> Any:
        return entry(
            entity=[entity(entity_type=kind, entity_name=name) for kind, name in names.items()],
            ops=[operation(key=key, value=value, remove=remove) for key, value in quotas.items()],
        )

    for entries in (
        [altered(names, quotas) for names, quotas in QUOTAS],
        [altered(REMOVED, {PRODUCER: 1.0})],
        [altered(REMOVED, {PRODUCER: 1.0}, remove=True)],
    ):
        answer = await client.send(AlterClientQuotasRequest(entries=entries), version=1)
        assert [each.error_code for each in answer.entries] == [0] * len(entries), answer
    upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
    )
    answer = await client.send(AlterUserScramCredentialsRequest(upsertions=[upsertion]), version=0)
    assert [each.error_code for each in answer.results] == [0]


async def stored_entries(store: MetadataStore, folders: tuple[str, ...] = FOLDERS) -> dict[str, str | None]:
    """All entries below the folders, parents first."""
    found: dict[str, str | None] = {}
    for folder in folders:
        for name in await store.children(folder):
            path = f"{folder}/{name}"
            data = (await store.get(path)).data
            found[path] = None if data is None else data.decode()
            found |= await stored_entries(store, (path,))
    return found


async def create_entries(store: MetadataStore, entries: dict[str, str | None]) -> None:
    for path, text in entries.items():
        await store.create(path, None if text is None else text.encode())


async def answers_of(client: NetworkClient, store: MetadataStore) -> dict[str, Any]:
    """What a broker with these quotas answers."""
    found = {name: await _answer(client, *asked) for name, asked in REQUESTS.items()}
    asked = DescribeClientQuotasRequest.ComponentData(entity_type=USER, match_type=EXACT, match="damaged")
    path = "/config/users/damaged"
    for name, text in DAMAGED.items():
        await store.create(path, text.encode())
        for strict in (False, True):
            request = DescribeClientQuotasRequest(components=[asked], strict=strict)
            found[f"{'only' if strict else 'with'} a user with {name}"] = await _answer(client, request, 1)
        await store.delete(path)
    return found


async def _answer(client: NetworkClient, request: DescribeClientQuotasRequest, version: int) -> Any:
    """Entities in any order, as Kafka has them in hash tables. Infinite quotas as texts, which JSON has."""
    document = to_document(await client.send(request, version=version), version)
    for entry in document["Entries"] or ():
        entry["Entity"].sort(key=lambda each: each["EntityType"])
        entry["Values"] = sorted((each["Key"], str(each["Value"])) for each in entry["Values"])
    document["Entries"] = document["Entries"] and sorted(document["Entries"], key=repr)
    return document
