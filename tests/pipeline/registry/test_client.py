"""The client of a schema registry, and what it makes of a registry's faults."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.jobs.registered_schemas import refuse_unfit_settings
from odradek.pipeline.registry.client import LOGIN_VARIABLE, SchemaRegistry
from odradek.pipeline.registry.schema import MOST_SCHEMAS, KnownSchemas, Schema
from odradek.pipeline.settings import make_settings
from tests.pipeline.registry.registry_front import Answer, RegistryFront

NO_SCHEMA: Answer = (404, b'{"error_code": 40403, "message": "Schema not found"}')


@pytest.fixture
def server() -> Iterator[RegistryFront]:
    """A server that has only the answers of the test."""
    with RegistryFront() as running:
        yield running


class Client(SchemaRegistry):
    """A client that closes its connection after each schema, does not sleep, and gives up at its third pause."""

    def __init__(self, server: RegistryFront, environ: Mapping[str, str] | None = None, **more: str) -> None:
        self.pauses: list[float] = []
        settings = make_settings({"schema_registry": server.url, **more})
        super().__init__(settings, environ or {}, self.pauses.append, retry_s=1.4)

    def schema(self, number: int) -> Schema | None:
        with closing(self):
            return super().schema(number)

    def latest(self, subject: str) -> tuple[int, Schema] | None:
        with closing(self):
            return super().latest(subject)


def answer(**content: object) -> Answer:
    return 200, json.dumps(content).encode()


def test_a_schema_has_the_texts_that_it_refers_to_those_first_that_others_need(server: RegistryFront) -> None:
    to_b = {"name": "b.proto", "subject": "b", "version": 2}
    to_c = {"name": "c.proto", "subject": "c/d", "version": 1}
    server.answers = {
        "/schemas/ids/7": answer(schema="a", schemaType="PROTOBUF", references=[to_b, to_c]),
        "/subjects/b/versions/2": answer(schema="b", references=[to_c]),
        "/subjects/c%2Fd/versions/1": answer(schema="c"),
    }
    found = Client(server).schema(7)
    assert found == Schema("PROTOBUF", "a", {"c.proto": "c", "b.proto": "b"})
    assert list(found.references) == ["c.proto", "b.proto"]
    assert server.asked == ["/schemas/ids/7", "/subjects/b/versions/2", "/subjects/c%2Fd/versions/1"]


def test_avro_is_the_type_of_a_schema_without_one_and_subjects_have_ids(server: RegistryFront) -> None:
    server.answers = {"/subjects/orders-value/versions/latest": answer(id=3, schema="{}")}
    assert Client(server).latest("orders-value") == (3, Schema("AVRO", "{}"))


@pytest.mark.parametrize("code", [40403, 40401, 40402])
def test_only_the_registrys_own_answer_means_that_it_lacks_an_id(server: RegistryFront, code: int) -> None:
    server.answers["/schemas/ids/7"] = 404, json.dumps({"error_code": code}).encode()
    if code == 40403:
        assert Client(server).schema(7) is None
        return
    with pytest.raises(PipelineError, match="answers 404 to /schemas/ids/7; check schema-registry"):
        Client(server).schema(7)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((404, b"<html>"), "answers 404 to /schemas/ids/7; check schema-registry: the URL below which"),
        ((404, b"[]"), "answers 404"),
        ((200, b"<html>"), "answers /schemas/ids/7 with something else than JSON; check schema-registry"),
        ((200, b"{}"), "answers without schema, so it is no schema registry"),
        ((200, b"[1]"), "something else than JSON"),
        ((200, b'{"schema": "a", "references": [{}]}'), "answers without name"),
        ((301, b""), "answers 301"),
        ((401, b""), f"answers 401 to /schemas/ids/7; set schema-registry-login, or {LOGIN_VARIABLE}"),
        ((403, b""), "answers 403"),
        ((500, b""), "answers 500 to /schemas/ids/7; nothing was written, and the next job repeats the batch"),
        ((503, b""), "answers 503"),
        ((429, b""), "answers 429"),
    ],
)
def test_every_other_answer_ends_the_job_and_makes_no_dead_letters(
    server: RegistryFront, given: Answer, says: str
) -> None:
    server.answers["/schemas/ids/7"] = given
    with pytest.raises(PipelineError) as caught:
        Client(server).schema(7)
    assert says in str(caught.value)
    assert len(server.asked) == (3 if given[0] in (429, 500, 503) else 1)


def test_a_registry_that_recovers_is_asked_again(server: RegistryFront) -> None:
    server.answers["/schemas/ids/7"] = [(500, b""), (503, b""), answer(schema="a"), answer(schema="b")]
    registry = Client(server)
    assert registry.schema(7) == Schema("AVRO", "a")
    assert registry.pauses == [0.5, 1]
    assert registry.schema(7) == Schema("AVRO", "b"), "the client has no cache: the job has one"


def test_a_registry_that_is_down_is_named(server: RegistryFront) -> None:
    server.down = True
    with pytest.raises(PipelineError, match=rf"{server.url} does not answer \(RemoteDisconnected.*next job repeats"):
        Client(server).schema(7)


def test_the_login_comes_from_the_settings_or_the_environment(server: RegistryFront) -> None:
    server.answers["/schemas/ids/7"] = NO_SCHEMA
    Client(server).schema(7)
    Client(server, {LOGIN_VARIABLE: "ann:secret"}).schema(7)
    Client(server, schema_registry_login="bob:pass:word").schema(7)
    assert server.logins == [None, "Basic YW5uOnNlY3JldA==", "Basic Ym9iOnBhc3M6d29yZA=="]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"schema_registry": "localhost:8081"}, "is not a URL; set http"),
        ({"schema_registry": "http://ann:secret@localhost"}, "schema-registry contains a login; set schema-registry-l"),
        ({"schema_registry": "http://localhost", "schema_registry_login": "ann"}, "has no colon; set USER:PASSWORD"),
        ({"schema_registry": "https://localhost", "schema_registry_ca": "/nowhere"}, "schema-registry-ca /nowhere"),
    ],
)
def test_invalid_settings_are_refused_and_no_password_is_shown(given: dict[str, str], says: str) -> None:
    with pytest.raises(PipelineError, match=says) as caught:
        SchemaRegistry(make_settings(given), {})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"schema_registry_login": "a:b"}, "schema-registry-login is set, but schema-registry is not"),
        ({"schema_registry_ca": "ca.pem"}, "schema-registry-ca is set, but"),
        ({"schema_subjects": ["a"]}, "schema-subjects is set, but"),
        ({"schema_registry": "http://localhost", "schema": "id LONG"}, "schema and schema-registry exclude each other"),
        ({"schema_registry": "http://localhost", "format": "raw"}, "but format is raw; set format to avro, json"),
    ],
)
def test_settings_that_do_nothing_or_contradict_each_other_are_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        refuse_unfit_settings(make_settings(given))


def test_known_schemas_are_bounded_and_the_text_has_all_of_them() -> None:
    known = KnownSchemas("{}")
    for number in range(MOST_SCHEMAS + 5):
        known = known.with_schema(number, Schema("JSON", f"{number}"), "{}", "why" if number == 1 else "")
    kept = known.only(frozenset({1}))
    assert list(kept.schemas) == [1, *range(6, MOST_SCHEMAS + 5)]
    assert KnownSchemas.of_text(kept.to_text()) == kept
    assert list(KnownSchemas.of_text(kept.to_text()).schemas) == list(kept.schemas)
    assert kept.unfit == {1: "why"}


def test_a_schema_that_is_formatted_anew_is_the_same() -> None:
    assert Schema("AVRO", '{"a": 1}').is_same(Schema("AVRO", '{"a":1}'))
    assert not Schema("AVRO", '{"a": 1}').is_same(Schema("JSON", '{"a": 1}'))
    assert not Schema("PROTOBUF", "a", {"b": "c"}).is_same(Schema("PROTOBUF", "a", {"b": "d"}))
