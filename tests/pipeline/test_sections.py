"""Several pipelines in one settings file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.sections import pipelines_of
from odradek.pipeline.settings import Settings, read_settings

SHOP = """
lake = "./lake"
max-offsets-per-trigger = 500
[kafka]
"max.poll.records" = 10
"client.rack" = "a"
[topic.orders]
event-time = "at"
[topic.paid]
topics = ["paid-eu", "paid-us"]
max-offsets-per-trigger = 7
[topic.paid.kafka]
"max.poll.records" = 20
[topic.clicks]
topics-pattern = "clicks-.*"
"""


def pipelines(tmp_path: Path, text: str, **flags: Any) -> list[Settings]:
    file = tmp_path / "shop.toml"
    file.write_text(text)
    return pipelines_of(read_settings(file, {}), flags)


def test_each_section_is_a_pipeline_with_the_common_settings(tmp_path: Path) -> None:
    common = {"lake": "./lake", "max_offsets_per_trigger": 500}
    kafka = {"max.poll.records": "10", "client.rack": "a"}
    assert pipelines(tmp_path, SHOP) == [
        Settings(name="orders", topics=("orders",), event_time="at", kafka=kafka, **common),  # type: ignore[arg-type]
        Settings(
            name="paid",
            topics=("paid-eu", "paid-us"),
            lake="./lake",
            max_offsets_per_trigger=7,
            kafka={**kafka, "max.poll.records": "20"},
        ),
        Settings(name="clicks", topics_pattern="clicks-.*", kafka=kafka, **common),  # type: ignore[arg-type]
    ]


def test_flags_override_all_sections_and_a_name_chooses_one(tmp_path: Path) -> None:
    found = pipelines(tmp_path, SHOP, lake="./other", max_offsets_per_trigger=9, kafka={"client.rack": "b"})
    assert [(one.lake, one.max_offsets_per_trigger, one.kafka["client.rack"]) for one in found] == [
        ("./other", 9, "b")
    ] * 3
    assert [one.name for one in pipelines(tmp_path, SHOP, name="paid")] == ["paid"]
    with pytest.raises(PipelineError, match="no section has the name 'x'; the names: orders, paid, clicks"):
        pipelines(tmp_path, SHOP, name="x")


def test_a_file_without_sections_is_one_pipeline(tmp_path: Path) -> None:
    found = pipelines(tmp_path, 'name = "a"\ntopics = ["t"]\n[kafka]\nx = 1', name="b", kafka={"y": "2"})
    assert found == [Settings(name="b", topics=("t",), kafka={"x": "1", "y": "2"})]


@pytest.mark.parametrize(
    ("text", "flags", "says"),
    [
        ('topic = "orders"', {}, r"topic must be sections: \[topic.NAME\]; for the topics of one pipeline, set topics"),
        ("[topic]", {}, "topic must be sections"),
        ("[topic]\na = 1", {}, "topic must be sections"),
        ('name = "a"\n[topic.b]', {}, "name is set before the sections, but no two pipelines can share it"),
        ('state = "a"\n[topic.b]', {}, "state is set before the sections"),
        ("[topic.b]", {"topics": "t"}, "topics is set as a flag, but no two pipelines can share it"),
        ('[topic.b]\ndriver-memory = "2g"', {}, r"driver-memory is set in \[topic.b\], but the pipelines of a file"),
        ("[topic.b.spark]\na = 1", {}, r"spark is set in \[topic.b\]"),
        ('[topic.a]\n[topic.b]\nname = "a"', {}, "two sections have the name 'a'"),
        ("[topic.b]\nnmae = 1", {}, r"unknown setting 'nmae'; did you mean name\?"),
        ('[topic."a b"]', {}, "name 'a b' must have"),
    ],
)
def test_invalid_sections_are_reported(tmp_path: Path, text: str, flags: dict[str, Any], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        pipelines(tmp_path, text, **flags)
