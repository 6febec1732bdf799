"""Where tables are, and where they cannot be."""

from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.places import Places
from odradek.pipeline.settings import make_settings


def test_the_state_is_in_the_lake_unless_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    places = Places.of(make_settings({"name": "orders", "lake": "~/my läke #1"}))
    assert places.rows == tmp_path / "my läke #1" / "orders"
    assert places.ledger == tmp_path / "my läke #1" / "_orders" / "batches"
    assert Places.of(make_settings({"state": "here"})).state == tmp_path / "here"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lake": "s3://bucket/lake"}, "lake 's3://bucket/lake' is no path; .* object stores are not supported"),
        ({"lake": "file:///tmp/lake"}, "is no path"),
        ({"lake": ""}, "lake is empty; name a directory"),
        ({"lake": "a[b]"}, r"lake '/.*a\[b\]' has '\[', which readers"),
        ({"lake": "a/{b}"}, "has '{'"),
        ({"lake": "a*"}, r"has '\*'"),
        ({"lake": "a%20b"}, "has '%20'"),
        ({"state": "a\nb"}, "state .* has"),
    ],
)
def test_a_directory_that_readers_take_for_another_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        Places.of(make_settings(given))


def test_a_per_cent_sign_alone_is_fine() -> None:
    assert Places.of(make_settings({"lake": "/50% off"})).rows == Path("/50% off/pipeline")
