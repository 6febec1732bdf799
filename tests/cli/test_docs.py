from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek.broker.coordinator.group.classic.state import TRANSITIONS, GroupState
from odradek.broker.coordinator.group.consumer import member_state
from odradek.broker.coordinator.group.consumer import state as consumer_state
from odradek.broker.coordinator.group.consumer.member_state import MemberState
from odradek.broker.coordinator.group.consumer.state import ConsumerGroupState
from odradek.broker.coordinator.transaction.transaction_state import MOVES, TransactionState
from odradek.broker.handlers.api_table import api_table
from odradek.broker.settings import AUTHORIZER, BROKER, CLIENT_METRICS, GROUP, TOPIC, value_text
from odradek.cli.docs import PAGES, PARTS, coordinators_page, main, settings_page, supported_apis_page
from odradek.protocol.schema import NEVER
from odradek.testing.faults.arguments import FaultArguments, arguments_of

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.mark.parametrize("name", list(PAGES))
def test_the_generated_pages_in_docs_are_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run make docs"


@pytest.mark.parametrize("name", list(PARTS))
def test_the_generated_parts_in_docs_are_up_to_date(name: str) -> None:
    text = (DOCS / name).read_text()
    assert text == PARTS[name](text), "run make docs"


def test_the_page_on_faults_has_every_argument_once() -> None:
    page = (DOCS / "testing" / "faults.md").read_text()
    for name in arguments_of(FaultArguments):
        assert len(re.findall(rf"^\| `{name}=", page, re.MULTILINE)) == 1, name


def test_every_setting_has_a_line_that_states_whether_it_takes_effect() -> None:
    lines = settings_page().splitlines()
    for setting in [*TOPIC.values(), *BROKER.values(), *GROUP.values(), *CLIENT_METRICS.values(), *AUTHORIZER.values()]:
        mark = "**yes**" if setting.takes_effect else "*refused*" if setting.protects else "not yet"
        name = f"`{setting.name}`" + (" (internal)" if setting.internal else "")
        name += " (gone)" if setting.removed_in else ""
        assert any(line.startswith(f"| {name} | {mark} | ") for line in lines), setting


def test_every_table_has_as_many_cells_in_each_row() -> None:
    for page in PAGES.values():
        width = 0
        for line in page().splitlines():
            cells = line.replace("\\|", "").count("|")
            assert not line.startswith("|") or width in (0, cells), line
            width = cells if line.startswith("|") else 0


def test_every_served_api_has_its_line() -> None:
    page = supported_apis_page()
    for row in api_table().rows():
        for versions in (row.served, row.between_brokers):
            if versions != NEVER:
                assert f"| {int(row.key)} | {row.key.name} | {versions.lowest}–{versions.highest} |" in page


def test_every_state_and_transition_of_the_coordinators_is_drawn_and_described() -> None:
    sections = re.split(r"\n(?=###? )", coordinators_page())[1:]
    names = (
        [state.label for state in GroupState],
        [state.label for state in ConsumerGroupState],
        [state.name for state in MemberState],
        [state.label for state in TransactionState],
    )
    moves = (
        [(old.label, new.label, why) for (old, new), why in TRANSITIONS.items()],
        [(old.label, new.label, why) for (old, new), why in consumer_state.TRANSITIONS.items()],
        [(old.name, new.name, why) for (old, new), why in member_state.TRANSITIONS.items()],
        [(old.label, new.label, why) for (old, new), why in MOVES.items()],
    )
    for section, states, known in zip(sections, names, moves, strict=True):
        lines = section.splitlines()
        listed = [name for line in lines if line.startswith("| ") for name in line.split("|")[1].strip().split(", ")]
        assert [name for name in listed if name in states] == sorted(states, key=listed.index)
        drawn = [line.strip().partition(":")[0] for line in lines if " --> " in line and "[*]" not in line]
        assert drawn == [f"{old} --> {new}" for old, new, _ in known]
        for number, (old, new, why) in enumerate(known, 1):
            assert f"| {number} | {old} | {new} | {why} |" in lines


def test_a_stale_page_fails_the_check_and_is_regenerated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--directory", str(tmp_path)]) == 0
    assert main(["--directory", str(tmp_path), "--check"]) == 0
    page = tmp_path / "settings.md"
    page.write_text(page.read_text() + "by hand")
    assert main(["--directory", str(tmp_path), "--check"]) == 1
    assert "settings.md is stale" in capsys.readouterr().err
    assert main(["--directory", str(tmp_path)]) == 0
    assert page.read_text() == settings_page()


def test_the_limits_that_the_security_page_names_are_the_settings_defaults() -> None:
    table = (DOCS / "security.md").read_text().partition("## Limits")[2].partition("\n## ")[0]
    limits = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| \S", table, re.MULTILINE)
    assert len(limits) >= 16
    for name, default in limits:
        assert BROKER[name].takes_effect, name
        assert value_text(BROKER[name].default) == default, name
