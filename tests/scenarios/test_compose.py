"""docker-compose.yml and docker-compose.secure.yml: from where their brokers can be reached, and by whom."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
import yaml

from odradek.broker.settings.config import load_config
from odradek.cli.__main__ import main
from odradek.cli.serve import add_arguments
from tests.secure_composition import NAME, REPOSITORY, USER_PASSWORD, composed_in
from tests.spawned_broker import free_port, spawned_broker

COMPOSE = (Path(__file__).parents[2] / "docker-compose.yml").read_text()


def test_ports_are_published_on_the_hosts_loopback_only() -> None:
    ports = re.findall(r'^ +- "([^"]+)"$', COMPOSE, re.MULTILINE)
    assert ports == ["127.0.0.1:9092:9092", "127.0.0.1:9404:9404"]


def test_the_command_serves_the_published_ports_on_all_container_interfaces() -> None:
    command, *arguments = re.findall(r"^ {6}- ((?:--)?\w\S*)$", COMPOSE.partition("ports:")[0], re.MULTILINE)
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parsed = parser.parse_args(arguments)
    config = load_config(settings=parsed.settings)
    assert command == "serve"
    assert (parsed.metrics_host, parsed.metrics_port) == ("0.0.0.0", 9404)
    assert [(each.host, each.port) for each in config.listeners] == [("0.0.0.0", 29092), ("0.0.0.0", 9092)]


def test_the_secure_file_publishes_on_the_hosts_loopback_only() -> None:
    ports = yaml.safe_load((REPOSITORY / NAME).read_text())["services"]["odradek"]["ports"]
    assert ports == ["127.0.0.1:9092:9092"]


def test_the_secure_file_reads_its_secrets_and_serves_who_logs_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = composed_in(tmp_path / "composed").parent
    service = yaml.safe_load((directory / NAME).read_text())["services"]["odradek"]
    assert sorted(service["secrets"]) == ["broker.p12", "password", "scram_credentials"]
    (config,) = service["configs"]
    assert f"--config={config['target']}" in service["command"]
    file = directory / "config" / "server.secure.properties"
    inside, outside = free_port(), free_port()
    texts = {
        "/run/secrets": str(directory / "secrets"),
        "/var/lib/odradek": str(tmp_path / "data"),
        "0.0.0.0:29092": f"127.0.0.1:{inside}",
        "0.0.0.0:9092": f"127.0.0.1:{outside}",
        "localhost:9092": f"localhost:{outside}",
    }
    text = file.read_text()
    for old, new in texts.items():
        text = text.replace(old, new)
    file.write_text(text)
    with spawned_broker(tmp_path / "data", config=file, port=inside) as broker:
        where = ("--bootstrap-server", f"localhost:{outside}", "--command-config", str(directory / "admin.properties"))
        assert main(["topics", "create", "greetings", *where]) == 0
        assert main(["health", "--bootstrap-server", f"localhost:{outside}"]) == 0
        assert USER_PASSWORD not in broker.log_text() + capsys.readouterr().out
