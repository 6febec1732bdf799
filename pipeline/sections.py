"""The sections of a settings file: several pipelines in one file, which one job runs.

    lake = "./lake"                     # what stands before the sections holds for all pipelines
    bootstrap-server = "broker:9092"

    [topic.orders]                      # reads the topic orders into LAKE/orders
    schema = "id LONG, amount DOUBLE"

    [topic.payments]
    topics = ["payments-eu", "payments-us"]
    schema = "id LONG, paid BOOLEAN"
    [topic.payments.kafka]
    "max.poll.records" = 1000

Each pipeline has the tables, the state and the shadow group of its name. A section may set everything but OF_PROCESS,
of which a process has one. Flags override all sections; `--name` chooses one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import OPTION_TABLES, Settings, flag, make_settings

SECTIONS = "topic"
OF_PROCESS = ("master", "driver_memory", "spark", "metrics_port", "metrics_host")
OF_SECTIONS = ("name", "topics", "topics_pattern", "state", "shadow_group")
"""Settings that two pipelines cannot share."""


def pipelines_of(content: Mapping[str, Any], flags: Mapping[str, Any]) -> list[Settings]:
    """Returns the pipelines of a settings file, as `read_settings` reads it, with `flags`. Raises PipelineError."""
    common = {name: value for name, value in content.items() if name != SECTIONS}
    if SECTIONS not in content:
        return [make_settings(_merged(common, flags))]
    sections = content[SECTIONS]
    if not isinstance(sections, Mapping) or not sections or not all(isinstance(s, Mapping) for s in sections.values()):
        raise PipelineError("topic must be sections: [topic.NAME]", "for the topics of one pipeline, set topics")
    for where, given in (("before the sections", common), ("as a flag", {**flags, "name": None})):
        if shared := [name for name in OF_SECTIONS if given.get(name) is not None]:
            raise PipelineError(
                f"{flag(shared[0])} is set {where}, but no two pipelines can share it", "set it in a section"
            )
    found = [
        make_settings(_merged(_pipeline(name, section, common), flags, but=("name",)))
        for name, section in sections.items()
    ]
    names = [one.name for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise PipelineError(f"two sections have the name {twice[0]!r}", "set another name in one of them")
    chosen = [one for one in found if one.name == flags.get("name", one.name)]
    if not chosen:
        raise PipelineError(f"no section has the name {flags['name']!r}", f"the names: {', '.join(names)}")
    return chosen


def _pipeline(name: str, section: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    own = {key.replace("-", "_"): value for key, value in section.items()}
    if found := [key for key in OF_PROCESS if key in own]:
        raise PipelineError(
            f"{flag(found[0])} is set in [topic.{name}], but the pipelines of a file share one process",
            "set it before the sections",
        )
    if not own.keys() & {"topics", "topics_pattern"}:
        own["topics"] = [name]
    return _merged({**common, "name": name}, own)


def _merged(given: Mapping[str, Any], over: Mapping[str, Any], but: tuple[str, ...] = ()) -> dict[str, Any]:
    """Returns the settings `given`, overridden by `over`. Tables of options are merged."""
    merged = {**given, **{name: value for name, value in over.items() if name not in but}}
    for name in OPTION_TABLES:
        if isinstance(given.get(name), Mapping) and isinstance(over.get(name), Mapping):
            merged[name] = {**given[name], **over[name]}
    return merged
