"""Each API of the table can fail, in every version, with the code in a field that clients read."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.handlers.api_table import api_table
from odradek.broker.handlers.telemetry_apis import with_telemetry
from odradek.broker.requests.request_metrics import error_finder
from odradek.protocol.errors import ErrorCode
from tests.testing.faults.failed_answers import CODE, failed_answers
from tests.wire.frames import body_of


def errors_in(response: Any, version: int) -> dict[int, int]:
    found: dict[int, int] = {}
    error_finder(type(response), version)(response, found)
    return found


@pytest.mark.parametrize("handled", [False, True])
def test_every_version_of_every_api_has_the_code_of_a_fault_and_no_other(handled: bool) -> None:
    seen = set()
    wrong = []
    for failed in failed_answers(handled=handled):
        seen.add(failed.key)
        found = errors_in(body_of(failed.frame, failed.key, failed.version), failed.version)
        if set(found) != {int(ErrorCode[CODE])}:
            wrong.append(f"{failed.api} {failed.version}: {found}")
    assert not wrong
    rows = with_telemetry(api_table()).rows()
    assert seen == {int(row.key) for row in rows if not handled or row.served.highest >= 0}
