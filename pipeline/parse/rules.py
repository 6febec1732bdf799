"""Rules for values, `[rules]`: SQL conditions on a row and its record, by name (expressions.py).

    amount = "amount >= 0"                          a row for which it is false is a dead letter: reason rule:amount
    country = "warn: country in ('AT', 'DE')"       the row is good; the ledger counts it
    quantity = "fail above 1 %: quantity < 1000"    as the first, but with more of such rows the batch is not written

As in SQL's CHECK, a condition that is null holds: `required` rejects nulls. Rules are applied to rows without any other
reason, after all other checks. A row has the reason of the first rule that it violates. The share of a `fail` rule is
that of its dead letters in all rows to which the rules of the batch were applied.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.parse.derived import refuse_names_of_records
from odradek.pipeline.parse.expressions import WHOLE, check_condition, scope
from odradek.pipeline.settings import Settings

REASON = "rule:"
"""The reasons of dead letters are this, and the rule's name."""
WARNED = "_warned"
"""The names of the `warn` rules that a row violates. The column is only there if there are such rules."""
_FORM = re.compile(
    r"(?:(?P<warn>warn)|fail(?:\s+above\s+(?P<above>[0-9.]+)\s*%)?)\s*:(?!:)\s*(?P<condition>.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule. `warns`: its rows stay good. `above`: the percentage up to which the batch is written; None: any."""

    name: str
    condition: str
    warns: bool = False
    above: float | None = None

    @property
    def reason(self) -> str:
        return REASON + self.name


def rules_of(settings: Settings) -> list[Rule]:
    """Returns the rules. Raises PipelineError if a name or an action is invalid."""
    return [_rule(name, text) for name, text in settings.rules.items()]


def check_rules(schema: StructType, settings: Settings) -> None:
    """Raises PipelineError unless all rules are conditions on rows of this schema. A session must be active."""
    if settings.rules:
        refuse_names_of_records(schema, "rules")
    for rule in rules_of(settings):
        check_condition(f"rules: {rule.name}", rule.condition, schema)


def with_rules(rows: DataFrame, schema: StructType, settings: Settings) -> DataFrame:
    """Applies the rules to rows without a reason: sets `reason` and `detail`, and adds WARNED if a rule warns."""
    rules = rules_of(settings)
    if not rules:
        return rows
    seen = scope(rows, schema.names)
    good = sf.col(f"{WHOLE}.reason").isNull()
    reason, detail = (sf.when(~good, sf.col(f"{WHOLE}.{name}")) for name in ("reason", "detail"))
    for rule in rules:
        if not rule.warns:
            reason = reason.when(_is_violated(rule), rule.reason)
            detail = detail.when(_is_violated(rule), f"{rule.condition} does not hold")
    columns = {"reason": reason, "detail": detail}
    warning = [sf.when(_is_violated(rule), rule.name) for rule in rules if rule.warns]
    if warning:
        columns[WARNED] = sf.when(good, sf.array_compact(sf.array(*warning)))
    kept = [sf.col(f"{WHOLE}.{name}") for name in rows.columns if name not in columns]
    return seen.select(*kept, *(column.alias(name) for name, column in columns.items()))


def refuse_violations(settings: Settings, reasons: Mapping[str, int], others: int, batch: object) -> None:
    """Raises PipelineError if more rows violate a `fail` rule than it allows. `reasons`: dead letters by reason.
    `others`: the number of rows without a reason."""
    applied = others + sum(count for reason, count in reasons.items() if reason.startswith(REASON))
    for rule in rules_of(settings):
        count = reasons.get(rule.reason, 0)
        if rule.above is not None and count * 100 > rule.above * applied:
            raise PipelineError(
                f"batch {batch}: {count} of {applied} rows violate the rule {rule.name} ({rule.condition}), "
                f"{count * 100 / applied:.3g} %, but it allows {rule.above:g} %; nothing of the batch was committed",
                "find the cause; to continue, change the rule or raise its limit",
            )


def warnings_of(rows: DataFrame) -> dict[str, int]:
    """Counts the rows without a reason that violate each `warn` rule. `rows`: persisted."""
    if WARNED not in rows.columns:
        return {}
    counted = rows.select(sf.explode(WARNED).alias("rule")).groupBy("rule").count()
    return {row["rule"]: row["count"] for row in counted.orderBy("rule").collect()}


def _rule(name: str, text: str) -> Rule:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", name):
        raise PipelineError(f"rules: the name {name!r} must have 1-100 letters, digits, '.', '_' or '-'")
    found = _FORM.fullmatch(text.strip())
    if found is None:
        if re.match(r"(warn|fail)\b[^(]*:(?!:)", text.strip()):
            raise PipelineError(f"rules: {name}: {text!r} has an unknown action", "write 'fail above 1 %: CONDITION'")
        return Rule(name, text.strip())
    if found["warn"]:
        return Rule(name, found["condition"], warns=True)
    try:
        above = float(found["above"] or 0)
    except ValueError as error:
        raise PipelineError(f"rules: {name}: {found['above']} is not a percentage", "write 'fail above 1 %'") from error
    if above > 100:
        raise PipelineError(f"rules: {name}: no more than 100 % can violate it", "write 'fail above 1 %: CONDITION'")
    return Rule(name, found["condition"], above=above)


def _is_violated(rule: Rule) -> Column:
    """Whether the condition is false for a row without a reason. It is not evaluated for others."""
    return sf.when(sf.col(f"{WHOLE}.reason").isNull(), ~sf.expr(rule.condition))
