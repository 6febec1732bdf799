"""What the pipeline has fetched or made, and may make again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the pipeline keeps what it has fetched or made."""
    root = environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "odradek"
