"""Secrets from the environment: they come into settings, and nothing shows them."""

from __future__ import annotations

import copy
import io
import pickle
from pathlib import Path

import pytest
import structlog

from odradek.cli.__main__ import main
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.report.progress import open_progress
from odradek.pipeline.settings import Settings, make_settings, read_settings
from odradek.pipeline.state.plan import judging_settings
from odradek.pipeline.variables import hidden

JAAS = 'Module required username="ann" password="{}";'
ENVIRON = {"PASSWORD": "ann's-secret", "HOST": "broker.example", "PORT": "9", "LIST": "a-host, b-host"}


def settings_of(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "orders.toml"
    file.write_text(text)
    return make_settings(read_settings(file, ENVIRON))


def test_variables_stand_in_any_value_and_are_not_shown(tmp_path: Path) -> None:
    settings = settings_of(
        tmp_path,
        'bootstrap-server = "${env:HOST}:${env:PORT}"\nlog-dirs = ["/logs", "/${env:HOST}"]\n'
        f'[kafka]\n"sasl.jaas.config" = \'{JAAS.format("${env:PASSWORD}")}\'\n"max.poll.records" = 5\n',
    )
    assert settings.bootstrap_server == "broker.example:9"
    assert settings.log_dirs == ("/logs", "/broker.example")
    assert settings.kafka == {"sasl.jaas.config": JAAS.format("ann's-secret"), "max.poll.records": "5"}
    for shown in (repr(settings), repr(copy.deepcopy(settings.kafka))):
        assert "ann's-secret" not in shown
        assert "${env:PASSWORD}" in shown
    assert pickle.loads(pickle.dumps(settings)).secrets == settings.secrets
    assert {"ann's-secret", "broker.example:9", "broker.example", "9"} < settings.secrets


def test_a_list_in_one_variable_is_split_and_stays_secret(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 'log-dirs = "${env:LIST}"')
    assert settings.log_dirs == ("a-host", "b-host")
    assert hidden("at a-host and b-host", settings.secrets) == "at [hidden] and [hidden]"


def test_short_secrets_are_hidden_as_words_and_numbers_stay() -> None:
    secrets = frozenset({"9", "long-secret", "a\nlast line"})
    found = hidden({"text": "9 of 19, LONG-SECRETS", "count": 9, "both": ["9", "last line", None]}, secrets)
    assert found == {"text": "[hidden] of 19, [hidden]S", "count": 9, "both": ["[hidden]", "[hidden]", None]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('lake = "${env:NOWHERE}"', "lake: the environment variable 'NOWHERE' is not set; set it, or write the value"),
        ('[kafka]\n"a.b" = "${env:}"', r"kafka\.a\.b: the environment variable '' is not set"),
        ('sink = "${env:PASSWORD}"', r"sink is '\$\{env:PASSWORD\}', not one of delta, iceberg, parquet"),
        ('name = "${env:PASSWORD}"', r"name '\$\{env:PASSWORD\}' must have 1-101 letters"),
        ('driver-memory = ["${env:PASSWORD}"]', r"driver-memory must be a string, not \['\$\{env:PASSWORD\}'\]"),
    ],
)
def test_an_error_names_the_variable_and_not_its_value(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(PipelineError, match=says) as caught:
        settings_of(tmp_path, text)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("line", ['name = "${env:HOST}"', 'topics = "${env:LIST}"', 'schema = "id ${env:HOST}"'])
def test_what_plans_and_tables_store_has_no_variables(tmp_path: Path, line: str) -> None:
    with pytest.raises(PipelineError, match=r"has a variable \$\{env:...\}, but is stored in plans and tables"):
        judging_settings(settings_of(tmp_path, line))


def test_kafkas_own_provider_of_this_name_keeps_its_variables(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, '[kafka]\n"config.providers" = "file,env"\n"a" = "${env:PASSWORD}"\n')
    assert settings.kafka["a"] == "${env:PASSWORD}"
    assert not settings.secrets


@pytest.mark.parametrize("is_terminal", [False, True])
def test_logs_hide_secrets_also_in_tracebacks(is_terminal: bool) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return is_terminal

    out = Stream()
    with open_progress(out, columns=lambda: 200, secrets=frozenset({'pass"word'})):
        log = structlog.get_logger("pipeline.test")
        log.warning('it is pass"word', inner={"list": ['pass"word', 1]})
        try:
            raise ValueError('not pass"word')
        except ValueError:
            log.exception("failed")
    text = out.getvalue()
    assert "pass" not in text.replace("pipeline/test", "").replace("raise ValueError('not pass\"word')", "")
    assert text.count("[hidden]") >= 3
    assert "ValueError: not [hidden]" in text


def test_a_command_hides_secrets_in_its_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_PLACE", "ftp://bucket-of-ann/lake")
    file = tmp_path / "orders.toml"
    file.write_text('lake = "${env:LAKE_PLACE}"')
    assert main(["pipeline", "report", "--settings", str(file)]) == 1
    error = capsys.readouterr().err
    assert "lake '${env:LAKE_PLACE}' is neither a path" in error or "[hidden]" in error
    assert "bucket-of-ann" not in error
