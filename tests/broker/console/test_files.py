"""The page's files: which are served, with which headers, and that they are part of what is installed."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

from odradek.broker.console.console import FILES, STATIC
from tests.broker.console.test_api import broker_with_console
from tests.broker.metrics.test_metrics import ask

ROOT = Path(__file__).parents[3]
PARSES_TEXT = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser")


def texts() -> dict[str, str]:
    return {file.name: file.read_text() for file in STATIC.iterdir()}


async def test_every_file_is_served_with_its_type_and_a_strict_policy() -> None:
    async with broker_with_console() as (_, port):
        for path, (name, content_type) in FILES.items():
            status, headers, body = await ask(port, path)
            assert (status, headers["Content-Type"], body) == (200, content_type, (STATIC / name).read_bytes())
            policy = headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
            assert "unsafe" not in policy
            assert "*" not in policy
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "Content-Security-Policy" in (await ask(port, "/api/overview"))[1]


def test_all_files_of_the_folder_are_served() -> None:
    assert {name for name, _ in FILES.values()} == set(texts())


def test_the_files_are_part_of_wheels_and_source_distributions() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    [pattern] = patterns["odradek.broker.console"]
    assert all(fnmatch(f"static/{name}", pattern) for name in texts())


def test_no_script_parses_text_as_html_or_code() -> None:
    assert not [(name, word) for name, text in texts().items() for word in PARSES_TEXT if word in text]


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_inline() -> None:
    page = texts()["index.html"]
    assert re.findall(r'(?:src|href)="([^"#]*)"', page) == [
        "/console/icon.svg",
        "/console/console.css",
        "/console/main.js",
        "/console/icon.svg",
    ]
    assert not re.findall(r"<style|style=|\son\w+=|<script(?! type=\"module\" src=)", page)
    others = "".join(text for name, text in texts().items() if name not in ("icon.svg",))
    assert set(re.findall(r"https?://[^\s\"']+", others)) == {"http://www.w3.org/2000/svg"}
    assert "url(" not in others
    assert "@import" not in others
