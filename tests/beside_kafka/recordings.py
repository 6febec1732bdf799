"""What Apache Kafka has answered, in tests/vectors. A test with Kafka itself checks that it still does; with
ODRADEK_RECORD=1 it writes what it hears.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors"
IS_RECORDING = os.environ.get("ODRADEK_RECORD") == "1"


def recorded(path: Path) -> Any:
    return json.loads(path.read_text())


def as_json(document: Any) -> Any:
    """As a recording has it."""
    return json.loads(json.dumps(document))


def is_still(path: Path, document: Any, **layout: Any) -> None:
    """Checks that Kafka's present answers are the recorded ones, or records them. `layout`: of json.dumps."""
    found = as_json(document)
    if IS_RECORDING:
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=1, **layout) + "\n")
    assert found == recorded(path)
