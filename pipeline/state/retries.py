"""How often, and for how long, a request to an object store is tried again: for deltalake and for obstore alike.

What is not said in [store] is of DEFAULTS: a store that is away for less than half a minute is waited for. A request
that fails for longer ends the job, which loses nothing by it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from odradek.pipeline.errors import PipelineError

DEFAULTS = {
    "max_retries": "30",
    "retry_timeout": "30s",
    "backoff_config.init_backoff": "100ms",
    "backoff_config.max_backoff": "5s",
    "backoff_config.base": "3",
}
"""The options, as deltalake names them. By object_store's own a quick 500 is given up after four seconds, and one that
comes slowly after three minutes."""
_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60}


def with_defaults(options: Mapping[str, str]) -> dict[str, str]:
    """All options of a store, those of DEFAULTS among them."""
    said = {name.lower() for name in options}
    return {**{name: value for name, value in DEFAULTS.items() if name not in said}, **options}


def retry_config(options: Mapping[str, str]) -> dict[str, Any]:
    """What obstore calls so, of the options that are for it. Raises PipelineError."""
    said = {**DEFAULTS, **{name.lower(): value for name, value in options.items()}}
    backoff = {
        name: _length(f"backoff_config.{name}", said[f"backoff_config.{name}"])
        for name in ("init_backoff", "max_backoff")
    }
    return {
        "max_retries": int(_number("max_retries", said["max_retries"])),
        "retry_timeout": _length("retry_timeout", said["retry_timeout"]),
        "backoff": {**backoff, "base": _number("backoff_config.base", said["backoff_config.base"])},
    }


def _number(name: str, text: str) -> float:
    if not re.fullmatch(r"\d+" if name == "max_retries" else r"\d+(\.\d+)?", text):
        raise PipelineError(f"[store] {name} is {text!r}, which is no number", f"give one like {DEFAULTS[name]}")
    return float(text)


def _length(name: str, text: str) -> timedelta:
    found = re.fullmatch(r"(\d+) *([a-z]+)", text)
    if found is None or found[2] not in _UNITS:
        raise PipelineError(
            f"[store] {name} is {text!r}, which is no length of time", f"give one like {DEFAULTS[name]}"
        )
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])
