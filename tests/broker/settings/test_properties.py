"""Property files against java.util.Properties: tests/vectors/properties.jsonl holds Java 17's result for each file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek.broker.settings.properties import parse_properties

VECTORS = [
    json.loads(line) for line in (Path(__file__).parents[2] / "vectors" / "properties.jsonl").read_text().splitlines()
]


def _without_lone_surrogates(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def test_every_properties_file_is_parsed_as_in_java() -> None:
    assert len(VECTORS) > 300
    for vector in VECTORS:
        data = bytes.fromhex(vector["hex"])
        if vector["properties"] is None:
            with pytest.raises(ValueError, match="hexadecimal"):
                parse_properties(data)
            continue
        wanted = {
            _without_lone_surrogates(name): _without_lone_surrogates(value)
            for name, value in vector["properties"].items()
        }
        assert parse_properties(data) == wanted, data


def test_a_continued_line_with_a_comment_and_a_duplicate_is_parsed() -> None:
    text = b"# one \\\nlisteners = PLAINTEXT://:9092, \\\n   INSIDE://:9093\n! two\nlog.dirs:/a\nlog.dirs /b c \n"
    assert parse_properties(text) == {"listeners": "PLAINTEXT://:9092, INSIDE://:9093", "log.dirs": "/b c "}
