"""Rules for values: the rows that violate them, and the batches that are not written."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.records import parsed
from odradek.pipeline.parse.rules import Rule, refuse_violations, rules_of, warnings_of
from odradek.pipeline.parse.schemas import schema_of
from odradek.pipeline.settings import Settings, make_settings
from tests.pipeline.parse.parsing_records import parsed_rows, records


def settings_of(rules: dict[str, str], **more: object) -> Settings:
    return make_settings({"schema": "id LONG, amount DOUBLE, size INT", "rules": rules, **more})


def test_a_row_is_a_dead_letter_by_the_first_rule_that_it_violates(spark: SparkSession) -> None:
    rules = {"amount": "amount >= 0", "size": "fail above 50 %: size < 10", "offset": "_offset <> 5"}
    settings = settings_of(rules, required=["id"], columns={"twice": "size * 2"})
    values = [
        b'{"id":1,"amount":0,"size":9}',
        b'{"id":1,"amount":-1,"size":10}',
        b'{"id":1,"size":10}',
        b'{"id":1}',
        b'{"amount":-1}',
        b'{"id":1}',
    ]
    rows = parsed_rows(spark, values, settings)
    assert [(row.reason, row.detail) for row in rows] == [
        (None, None),
        ("rule:amount", "amount >= 0 does not hold"),
        ("rule:size", "size < 10 does not hold"),
        (None, None),
        ("missing_required", "id is null or missing"),
        ("rule:offset", "_offset <> 5 does not hold"),
    ]
    assert "_warned" not in rows[0]


def test_rows_that_violate_a_rule_that_warns_are_good_and_counted(spark: SparkSession) -> None:
    rules = {"amount": "warn: amount >= 0", "size": "warn:size < 10", "dead": "id > 0", "never": "warn: true"}
    values = [
        b'{"id":1,"amount":-1,"size":10}',
        b'{"id":1,"amount":-1}',
        b'{"id":0,"amount":-1}',
        b'{"id":1}',
        b"{",
    ]
    rows = parsed(records(spark, values), settings_of(rules))
    assert [row.reason for row in rows.orderBy("offset").collect()] == [None, None, "rule:dead", None, "not_json"]
    assert warnings_of(rows) == {"amount": 2, "size": 1}


def test_forms_of_rules() -> None:
    rules = {
        "a": "x = 'warn: y'",
        "b": " warn :  x > 0 ",
        "c": "fail: x > 0",
        "d": "fail above 0.5%: x::int > 0",
        "e": "fail  above 100 % : x > 0",
        "f": "warned = 1",
    }
    assert rules_of(settings_of(rules)) == [
        Rule("a", "x = 'warn: y'"),
        Rule("b", "x > 0", warns=True),
        Rule("c", "x > 0", above=0),
        Rule("d", "x::int > 0", above=0.5),
        Rule("e", "x > 0", above=100),
        Rule("f", "warned = 1"),
    ]


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ({"amount": "amount >"}, "rules: amount: 'amount >' is not an SQL expression"),
        ({"amount": "amount"}, "rules: amount: 'amount' is DOUBLE, not BOOLEAN; compare it"),
        ({"amount": "colour > 1"}, "rules: amount: .*UNRESOLVED_COLUMN"),
        ({"amount": "amount > avg(amount)"}, "rules: amount: .*'amount > avg\\(amount\\)' is not an SQL expression"),
        ({"amount": "rand() < 0.5"}, "depends on chance or the clock"),
        ({"amount": ""}, "rules: amount: '' is not an SQL expression"),
        ({"amount": "warn:"}, "rules: amount: '' is not an SQL expression"),
        ({"amount": "fail above 1: amount > 1"}, "has an unknown action; write 'fail above 1 %: CONDITION'"),
        ({"amount": "warn above 1 %: amount > 1"}, "has an unknown action"),
        ({"amount": "fail above 1.2.3 %: amount > 1"}, "1.2.3 is not a percentage"),
        ({"amount": "fail above 101 %: amount > 1"}, "no more than 100 % can violate it"),
        ({"a b": "amount > 1"}, "the name 'a b' must have 1-100 letters"),
    ],
)
def test_invalid_rules_are_reported_at_the_start(spark: SparkSession, rules: dict[str, str], says: str) -> None:
    with pytest.raises(PipelineError, match=says) as caught:
        schema_of(settings_of(rules))
    assert "\n" not in str(caught.value)


def test_a_batch_with_too_many_violations_is_refused() -> None:
    settings = settings_of({"amount": "fail above 1 %: amount > 0", "size": "size > 0", "never": "fail: id > 0"})
    dead = {"not_json": 900, "rule:amount": 2, "rule:size": 98}
    refuse_violations(settings, dead, 100, "b")
    refuse_violations(settings, {}, 0, "b")
    with pytest.raises(PipelineError, match=r"batch b: 3 of 201 rows violate the rule amount \(amount > 0\), 1\.49 %"):
        refuse_violations(settings, {**dead, "rule:amount": 3}, 100, "b")
    with pytest.raises(PipelineError, match=r"rule never \(id > 0\), 0\.0001 %, but it allows 0 %; nothing of"):
        refuse_violations(settings, {"rule:never": 1}, 999_999, "b")
