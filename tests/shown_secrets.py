"""Secrets in the output of tests: a test that shows one fails.

(A) A password that a test makes up ends in MARKER. Other secrets have a form of their own: private keys in PEM, and
    what the broker keeps of SCRAM's users.
(B) What a test prints and logs in each of its phases is searched, also what `capture_logs` catches, and the logs of
    brokers in processes of their own (spawned_broker.py).
(C) A test that shows a secret on purpose has the mark `shows_secrets("why")`.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

import pytest
import structlog.testing

MARKER = "-secret"
SECRET = re.compile(rf"\b\w+{MARKER}\b|BEGIN [A-Z ]*PRIVATE KEY|(?:stored|server)_key=\w")
AROUND = 60
"""How many characters before a secret are shown with its place."""
MARK = "shows_secrets"

_found: list[str] = []
_in_capture = structlog.testing.LogCapture.__call__


def look_into(text: str, where: str) -> None:
    """Notes the first secret in a text, for the test that runs. The secret itself is not shown."""
    match = SECRET.search(text)
    if match is not None:
        _found.append(f"{where}: {text[max(match.start() - AROUND, 0) : match.start()]}(a secret)")


def _captured(self: structlog.testing.LogCapture, logger: Any, method_name: str, event_dict: Any) -> Any:
    look_into(repr(event_dict), "log line")
    return _in_capture(self, logger, method_name, event_dict)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}(why): the output of the test may have secrets")
    structlog.testing.LogCapture.__call__ = _captured  # type: ignore[assignment, method-assign]


def pytest_unconfigure() -> None:
    structlog.testing.LogCapture.__call__ = _in_capture  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    for name, text in report.sections:
        if name.endswith(report.when):
            look_into(text, name)
    found = list(_found)
    _found.clear()
    if found and report.outcome == "passed" and item.get_closest_marker(MARK) is None:
        report.outcome = "failed"
        report.longrepr = "a secret was shown:\n" + "\n".join(found)
    return report
