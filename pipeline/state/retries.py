"""How often, and for how long, requests to an object store are retried, both by deltalake and by obstore.

Options that [store] does not set have the values of DEFAULTS: a job survives a store outage of less than half a minute.
A request that fails for longer ends the job, without data loss.
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
"""The options, as deltalake names them. With object_store's own defaults a client gives up after four seconds if the
store quickly returns 500, and after three minutes if it returns 500 slowly."""
_UNITS = {"ms": 0.001, "s": 1, "sec": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "minute": 60, "minutes": 60}


def with_defaults(options: Mapping[str, str]) -> dict[str, str]:
    """Returns the options of a store, completed by DEFAULTS."""
    given = {name.lower() for name in options}
    return {**{name: value for name, value in DEFAULTS.items() if name not in given}, **options}


def retry_config(options: Mapping[str, str]) -> dict[str, Any]:
    """Returns obstore's `retry_config`, made of those options that concern it. Raises PipelineError."""
    values = {**DEFAULTS, **{name.lower(): value for name, value in options.items()}}
    backoff = {
        name: _length(f"backoff_config.{name}", values[f"backoff_config.{name}"])
        for name in ("init_backoff", "max_backoff")
    }
    return {
        "max_retries": int(_number("max_retries", values["max_retries"])),
        "retry_timeout": _length("retry_timeout", values["retry_timeout"]),
        "backoff": {**backoff, "base": _number("backoff_config.base", values["backoff_config.base"])},
    }


def _number(name: str, text: str) -> float:
    if not re.fullmatch(r"\d+" if name == "max_retries" else r"\d+(\.\d+)?", text):
        raise PipelineError(f"[store] {name} is {text!r}, not a number", f"set it to, say, {DEFAULTS[name]}")
    return float(text)


def _length(name: str, text: str) -> timedelta:
    found = re.fullmatch(r"(\d+) *([a-z]+)", text)
    if found is None or found[2] not in _UNITS:
        raise PipelineError(f"[store] {name} is {text!r}, not a duration", f"set it to, say, {DEFAULTS[name]}")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])
