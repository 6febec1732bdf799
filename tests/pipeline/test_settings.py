"""Settings: a file, flags that override it, and clear errors."""

from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.settings import Settings, make_settings, read_settings


def test_a_file_gives_settings_with_dashes_and_tables_of_options(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text('name = "orders"\ntopics = ["a", "b"]\nevent-time = "at"\n[kafka]\n"max.poll.records" = 5000\n')
    settings = make_settings(read_settings(file))
    assert settings == Settings(name="orders", topics=("a", "b"), event_time="at", kafka={"max.poll.records": "5000"})


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"nmae": "x"}, r"unknown setting 'nmae'; did you mean name\?"),
        ({"dedup_key": "x"}, r"unknown setting 'dedup-key'; did you mean dedup-keys\?"),
        ({"flavour": "x"}, "unknown setting 'flavour'; `odradek pipeline ingest --help` lists them"),
        ({"sink": "csv"}, "sink is 'csv', not one of delta, iceberg, parquet"),
        ({"max_offsets_per_trigger": "many"}, "max-offsets-per-trigger must be a number"),
        ({"max_offsets_per_trigger": True}, "must be a number"),
        ({"max_offsets_per_trigger": -1}, "must be a number from 0 up"),
        ({"files_per_batch": -1}, "files-per-batch must be a number from 0 up, not -1"),
        ({"compact_target_size": 0}, "compact-target-size must be a number from 1 up, not 0"),
        ({"topics": [1]}, "topics must be a list of strings"),
        ({"name": "../up"}, "name '../up' must have"),
        ({"topics": ["a"], "topics_pattern": "b"}, "exclude each other"),
        ({"kafka": "x"}, "kafka must be a table"),
        ({"max_lag": "many"}, "max-lag is 'many', not a number of offsets"),
        ({"max_dead": "0.5"}, "max-dead is '0.5', not a limit; set it to, say, 1000 or 0.5%"),
        ({"alarm_period": "soon"}, "alarm-period is 'soon', not a duration"),
        ({"metrics_port": -2}, "metrics-port must be a number from -1 up"),
    ],
)
def test_invalid_settings_are_reported(given: dict[str, object], says: str) -> None:
    with pytest.raises(PipelineError, match=says):
        make_settings(given)


def test_a_file_that_is_not_toml_is_reported_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text("name = orders")
    with pytest.raises(PipelineError, match=r"orders\.toml is not TOML"):
        read_settings(file)
