"""The examples of README.md work unchanged."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from odradek.testing import BrokerThread
from tests.patience import PATIENCE_S

README = Path(__file__).parent.parent.parent / "README.md"


def test_the_readmes_python_example_writes_and_reads_a_record(odradek_broker: BrokerThread) -> None:
    text = README.read_text()
    (example,) = (block.split("```")[0] for block in text.split("```python\n")[1:] if "KafkaConsumer(" in block)
    assert "127.0.0.1:9092" in example
    command = [sys.executable, "-c", example.replace("127.0.0.1:9092", odradek_broker.bootstrap)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert outcome.stdout == "0 b'world' b'hello'\n"


def test_every_page_that_the_readme_and_the_docs_link_to_exists() -> None:
    for page in [README, *(README.parent / "docs").rglob("*.md"), README.parent / "CHANGELOG.md"]:
        for link in page.read_text().split("](")[1:]:
            target = link.split(")")[0].split("#")[0]
            assert target.startswith("http") or (page.parent / target).exists(), (page.name, target)


def test_the_readmes_shell_commands_write_and_read_a_record(odradek_broker: BrokerThread) -> None:
    text = README.read_text()
    (block,) = (
        block.split("```")[0] for block in text.split("```\n")[1:] if "odradek produce" in block.split("```")[0]
    )
    commands = [line for line in block.splitlines() if line]
    assert len(commands) == 2
    outputs = []
    for command in commands:
        assert ".venv/bin/odradek " in command
        mine = command.replace(".venv/bin/odradek", f"{sys.executable} -m odradek.cli")
        outcome = subprocess.run(
            ["sh", "-c", f"{mine} --bootstrap-server {odradek_broker.bootstrap}"],
            cwd=README.parent,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        outputs.append(outcome.stdout)
    assert outputs[1] == "hello\n"


def test_the_readmes_examples_for_tests_run_in_a_project_of_their_own(tmp_path: Path) -> None:
    """The unchanged examples, with the imports that they omit, and one line each that uses their result."""
    text = README.read_text()
    (example,) = (block.split("```")[0] for block in text.split("```python\n")[1:] if "odradek_broker" in block)
    blocking, asynchronous = "KafkaProducer(bootstrap_servers=odradek_broker.bootstrap)", "AIOKafkaProducer("
    assert blocking in example
    assert asynchronous in example
    imports = "from aiokafka import AIOKafkaProducer\nfrom odradek.testing import in_process_broker\n"
    used = example.replace(
        blocking, f"{blocking}\n    assert producer.send('t', b'v').get(20).offset == 0\n    producer.close()"
    )
    (last,) = [line for line in used.splitlines() if asynchronous in line]
    indent = last[: len(last) - len(last.lstrip())]
    lines = ["await producer.start()", "await producer.send_and_wait('t', b'v')", "await producer.stop()"]
    used = used.replace(last, "\n".join([last, *(indent + line for line in lines)]))
    (tmp_path / "test_example.py").write_text(f"{imports}from kafka import KafkaProducer\n{used}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
