"""What README.md shows works as it stands there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from broker.testing import BrokerThread

README = Path(__file__).parent.parent.parent / "README.md"


def test_the_first_record_of_the_readme_arrives(odradek_broker: BrokerThread) -> None:
    text = README.read_text()
    (example,) = (block.split("```")[0] for block in text.split("```python\n")[1:] if "KafkaConsumer(" in block)
    assert "127.0.0.1:9092" in example
    command = [sys.executable, "-c", example.replace("127.0.0.1:9092", odradek_broker.bootstrap)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert outcome.stdout == "0 b'world' b'hello'\n"


def test_every_page_that_the_readme_and_the_docs_name_is_there() -> None:
    for page in [README, *(README.parent / "docs").glob("*.md"), README.parent / "CHANGELOG.md"]:
        for link in page.read_text().split("](")[1:]:
            target = link.split(")")[0].split("#")[0]
            assert target.startswith("http") or (page.parent / target).exists(), (page.name, target)
