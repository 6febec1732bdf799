"""The registered schemas of a pipeline: asked for once, kept in the state, and given to each batch with its settings.

A batch is decoded with the schemas in its plan, and the executors do not ask the registry. The driver asks it for the
ids that the plan lacks, before anything of the batch is written (`look_up`). If it has one of them, the batch is
planned again with that schema (NewSchemas). Otherwise their records are dead letters, also if the batch is repeated.

The columns never become fewer or narrower: the state has them before a table does. When a job starts, and when a schema
is added, the registry must still have the same schemas under the known ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import replace

import structlog

from odradek.pipeline.errors import ANEW, PipelineError
from odradek.pipeline.parse.registered_columns import learned
from odradek.pipeline.registry.client import SchemaRegistry
from odradek.pipeline.registry.schema import MOST_SCHEMAS, KnownSchemas, Schema
from odradek.pipeline.settings import Settings, flag
from odradek.pipeline.state.location import Location
from odradek.pipeline.state.places import SCHEMAS

log = structlog.get_logger("pipeline.schemas")


class NewSchemas(Exception):
    """The batch has records of these schemas, which its plan lacks. Nothing of it was written."""

    def __init__(self, found: dict[int, Schema]) -> None:
        super().__init__(f"schemas {', '.join(map(str, found))} are new")
        self.found = found


class RegisteredSchemas:
    """The schemas of one job. `sleep` pauses between two attempts to reach the registry. `keeps`: whether new schemas
    are written to the state. Raises PipelineError."""

    def __init__(self, settings: Settings, state: Location, sleep: Callable[[float], None], keeps: bool = True) -> None:
        self._settings = settings
        self._state = state
        self._registry = SchemaRegistry(settings, sleep=sleep)
        self._known = read_known(state)
        self._of_batch: set[int] = set()
        self._keeps = keeps

    def start(self, topics: Callable[[], Iterable[str]]) -> Settings:
        """Returns the settings with the known schemas. Before any record was read, they are the latest of the subjects.
        `topics`: returns the names of the topics. Raises PipelineError, also if the registry does not respond."""
        if found := self.check(topics):
            self._add(found)
        return self.settings

    def check(self, topics: Callable[[], Iterable[str]]) -> dict[int, Schema]:
        """Asks the registry what `start` needs, and changes nothing. Returns new schemas. Raises PipelineError."""
        if self._known.columns:
            self._compare()
            return {}
        subjects = self._settings.schema_subjects or [f"{name}-value" for name in topics()]
        with closing(self._registry):
            found = [one for subject in subjects if (one := self._registry.latest(subject)) is not None]
        if not found:
            raise PipelineError(
                f"the schema registry {self._registry.url} has no subject {', '.join(subjects)}",
                "register the schema of the values, or set schema-subjects",
            )
        return dict(found)

    @property
    def settings(self) -> Settings:
        """The settings with the known schemas, as a plan needs them."""
        return replace(self._settings, schema=self._known.to_text())

    def look_up(self, ids: Iterable[int]) -> None:
        """Asks the registry for ids that the plan of a batch lacks. Raises NewSchemas if it has one, and
        PipelineError."""
        with closing(self._registry):
            found = {one: schema for one in ids if (schema := self._registry.schema(one)) is not None}
        if found:
            raise NewSchemas(found)

    def learn(self, found: dict[int, Schema]) -> Settings:
        """Adds schemas of the running batch. Returns the new settings. Raises PipelineError."""
        self._of_batch |= set(found)
        if len(self._of_batch) > MOST_SCHEMAS:
            raise PipelineError(
                f"a batch has records of more than {MOST_SCHEMAS} schemas", "set a smaller max-offsets-per-trigger"
            )
        self._compare()
        self._add(found)
        return self.settings

    def batch_done(self) -> None:
        """The batch is written: from now on its schemas may be forgotten before others."""
        self._of_batch.clear()

    def _add(self, found: dict[int, Schema]) -> None:
        known = self._known
        for number, schema in found.items():
            known = learned(known, number, schema, self._settings)
            if why := known.unfit.get(number):
                log.warning("schema does not fit, so its records are dead letters", schema=number, reason=why)
        self._known = known.only(frozenset(self._of_batch | set(found)))
        if self._keeps:
            self._state.replace(SCHEMAS, self._known.to_text().encode())

    def _compare(self) -> None:
        """Raises PipelineError if the registry has another schema under a known id."""
        with closing(self._registry):
            there = {number: self._registry.schema(number) for number in self._known.schemas}
        for number, known in self._known.schemas.items():
            now = there[number]
            if now is None:
                log.warning("registered schema deleted but used", schema=number)
            elif not now.is_same(known):
                raise PipelineError(
                    f"the schema registry {self._registry.url} has another schema under id {number} than when this "
                    "pipeline read it, so it is another registry, or was made anew",
                    f"set schema-registry to the old one; or {ANEW}",
                )


def read_known(state: Location) -> KnownSchemas:
    """Returns the schemas in the state; none before the first job. Raises PipelineError."""
    content = state.read(SCHEMAS)
    try:
        return KnownSchemas() if content is None else KnownSchemas.of_text(content.decode())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PipelineError(f"{state / SCHEMAS} is damaged ({error})", f"restore it; or {ANEW}") from error


def refuse_unfit_settings(settings: Settings) -> None:
    """Raises PipelineError if a setting contradicts schema-registry, or does nothing without it."""
    if not settings.schema_registry:
        for name in ("schema_registry_login", "schema_registry_ca", "schema_subjects"):
            if getattr(settings, name):
                raise PipelineError(f"{flag(name)} is set, but schema-registry is not", "set both, or none")
        return
    if settings.schema:
        raise PipelineError("schema and schema-registry exclude each other", "set only one of them")
    if settings.format == "raw":
        raise PipelineError("schema-registry is set, but format is raw", "set format to avro, json or protobuf")
