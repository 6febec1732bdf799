"""docker-compose.yml: from where its broker can be reached."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from odradek.broker.serve import add_arguments
from odradek.broker.settings.config import load_config

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
