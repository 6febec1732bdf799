"""Generates orders of a shop: mostly good, some duplicate, some late, some invalid.

A seed always gives the same records. Of every thousand about 20 are duplicates, 8 are late beyond a watermark of ten
minutes, and 3 each are invalid in one of five ways; the rest are good orders, nearly ordered by time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

SCHEMA = "id LONG, customer STRING, country STRING, item STRING, quantity INT, amount DOUBLE, at TIMESTAMP"
COUNTRIES = ("AT", "CZ", "DE", "FR", "IT", "PL")
ITEMS = {"thread spool": 1.9, "star of wood": 4.5, "letter opener": 12.0, "burrow map": 30.0, "castle key": 99.0}
TWICE, LATE, SPOILT = 0.020, 0.008, 0.015
"""Fractions of the records."""
LATE_BY = timedelta(hours=2)


@dataclass(frozen=True, slots=True)
class Record:
    """A record to produce."""

    key: bytes
    value: bytes | None


def orders(random: Random, count: int, start: datetime, *, first_id: int = 0) -> Iterator[Record]:
    """Yields `count` records, from `start` on, ten per second."""
    recent: list[Record] = []
    for number in range(count):
        now = start + timedelta(seconds=number / 10)
        chance = random.random()
        if chance < TWICE and recent:
            yield random.choice(recent)
            continue
        if chance < TWICE + SPOILT:
            yield _spoilt(random, first_id + number, now)
            continue
        is_late = chance < TWICE + SPOILT + LATE and number > count // 2
        record = _order(random, first_id + number, now - LATE_BY if is_late else now - _jitter(random))
        yield record
        if not is_late:
            recent = [*recent[-50:], record]


def by_country(records: Iterable[Record]) -> list[tuple[str, int, float]]:
    """Returns the country, the number of orders and their amount, rounded, for the good orders among all records of a
    demo, each once. Without the late ones: those that are an hour older than an earlier order."""
    found: dict[str, dict[int, float]] = {}
    newest = datetime.min.replace(tzinfo=UTC)
    for record in records:
        try:
            fields = json.loads(record.value or b"")
            number, amount, at = int(fields["id"]), float(fields["amount"]), datetime.fromisoformat(fields["at"])
        except (ValueError, TypeError):
            continue
        newest = max(newest, at)
        if at > newest - LATE_BY / 2:
            found.setdefault(fields["country"], {})[number] = amount
    return [(country, len(amounts), round(sum(amounts.values()), 2)) for country, amounts in sorted(found.items())]


def _jitter(random: Random) -> timedelta:
    return timedelta(seconds=random.expovariate(1 / 5))


def _order(random: Random, number: int, at: datetime) -> Record:
    item = random.choice(list(ITEMS))
    quantity = 1 + int(random.expovariate(1))
    customer = f"customer-{random.randrange(300):04}"
    fields = {
        "id": number,
        "customer": customer,
        "country": random.choice(COUNTRIES),
        "item": item,
        "quantity": quantity,
        "amount": round(quantity * ITEMS[item], 2),
        "at": _text(at),
    }
    return Record(customer.encode(), json.dumps(fields).encode())


def _spoilt(random: Random, number: int, at: datetime) -> Record:
    """Returns an order that is invalid in one of five ways."""
    good = _order(random, number, at)
    assert good.value is not None
    fields = json.loads(good.value)
    kind = random.randrange(5)
    if kind == 0:
        return Record(good.key, good.value[: len(good.value) // 2])
    if kind == 1:
        return Record(good.key, json.dumps({**fields, "amount": "much"}).encode())
    if kind == 2:
        return Record(good.key, json.dumps({**fields, "id": None}).encode())
    if kind == 3:
        return Record(good.key, json.dumps({**fields, "at": "yesterday"}).encode())
    return Record(good.key, None)


def _text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
