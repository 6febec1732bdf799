"""The cache directory of files that the pipeline fetched or generated, and can restore."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Returns the cache directory: $XDG_CACHE_HOME/odradek, or ~/.cache/odradek."""
    root = environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "odradek"
