"""Medians, ratios and verdicts of a row's readings."""

from benchmarks.measurement import LESS, MORE, Metric, Reading, Result
from benchmarks.report import as_json, slower_than_before, table


def result(metric: Metric, ours: list[Reading], kafka: list[Reading]) -> Result:
    return Result("row", metric, {"odradek": ours, "kafka": kafka})


def values(*numbers: float) -> list[Reading]:
    return [Reading(number) for number in numbers]


def test_the_ratio_of_medians_is_how_many_times_better_odradek_is() -> None:
    speed = result(Metric("speed", "MB/s", MORE), values(10, 300, 20), values(10, 9, 500))
    assert speed.ratio() == 2.0
    assert speed.verdict == "ahead"
    time = result(Metric("time", "ms", LESS), values(10, 20, 30), values(5, 10, 15))
    assert (time.ratio(), time.verdict) == (0.5, "behind")


def test_the_median_is_a_real_reading_with_its_own_cpu_time() -> None:
    readings = [Reading(5, 1.0), Reading(7, 2.0), Reading(6, 3.0)]
    assert result(Metric("speed", "MB/s", MORE), readings, []).median("odradek") == Reading(6, 3.0)


def test_ahead_means_reaching_the_wanted_ratio() -> None:
    metric = Metric("speed", "MB/s", MORE, 1.5)
    assert result(metric, values(149), values(100)).verdict == "behind"
    assert result(metric, values(150), values(100)).verdict == "ahead"


def test_cpu_time_per_operation_decides_if_the_client_is_the_bottleneck() -> None:
    metric = Metric("speed", "MB/s", MORE, 1.5)
    kafka = [Reading(100, cpu_seconds=4, seconds=10, operations=1000)]
    idle = [Reading(100, cpu_seconds=2, seconds=10, operations=1000)]
    busy = [Reading(100, cpu_seconds=2, seconds=3, operations=1000)]
    hungry = [Reading(100, cpu_seconds=4, seconds=10, operations=1000)]
    assert result(metric, idle, kafka).verdict == "ahead by CPU"
    assert result(metric, busy, kafka).verdict == "behind"
    assert result(metric, hungry, kafka).verdict == "behind"


def test_zero_is_less_than_any_other_reading() -> None:
    nothing = result(Metric("CPU", "ms/s", LESS), values(0), values(17))
    assert (nothing.ratio(), nothing.verdict) == (None, "ahead")


def test_without_kafka_there_is_a_table_and_no_verdict() -> None:
    alone = Result("row", Metric("speed", "MB/s", MORE), {"odradek": values(12.5)})
    assert (alone.ratio(), alone.verdict) == (None, "")
    assert "12.5" in table([alone])
    assert as_json([alone], ["a note"], 1)["rows"][0]["medians"]["odradek"]["value"] == 12.5


def test_an_informative_metric_has_no_verdict() -> None:
    assert result(Metric("late", "ms", LESS, None), values(5), values(1)).verdict == ""


def beside_before(metric: Metric, ours: list[Reading], before: list[Reading]) -> Result:
    return Result("row", metric, {"odradek": ours, "before": before, "kafka": []})


def test_slower_than_before_means_that_every_round_is_worse_than_the_older_ones() -> None:
    speed, took = Metric("speed", "MB/s", MORE), Metric("took", "us", LESS)
    assert beside_before(speed, values(8, 9), values(10, 11)).against_before == "slower"
    assert beside_before(speed, values(8, 10), values(10, 11)).against_before == ""
    assert beside_before(took, values(12, 13), values(10, 11)).against_before == "slower"
    assert beside_before(took, values(11, 13), values(10, 11)).against_before == ""
    assert beside_before(took, values(9, 9), values(10, 11)).against_before == ""


def test_a_single_round_has_no_scatter() -> None:
    assert beside_before(Metric("took", "us", LESS), values(12), values(10, 11)).against_before == ""
    assert beside_before(Metric("took", "us", LESS), values(12, 13), []).against_before == ""


def test_more_cpu_than_before_is_a_separate_verdict_from_slower() -> None:
    ours = [Reading(5, cpu_seconds=seconds, operations=1000) for seconds in (3, 4)]
    before = [Reading(5, cpu_seconds=seconds, operations=1000) for seconds in (1, 2)]
    found = beside_before(Metric("took", "us", LESS), ours, before)
    assert found.against_before == "more CPU"
    assert found.cpu_ratio("before") == 1 / 3
    assert slower_than_before([found]) == ["took: more CPU than before in every round"]


def test_an_older_checkout_that_takes_part_has_columns_and_ratios() -> None:
    speed = Metric("speed", "MB/s", MORE)
    results = [beside_before(speed, values(8, 9), values(16, 18))]
    headings, line = table(results).splitlines()[1:]
    assert "before" in headings
    assert "0.50x" in line
    assert line.endswith("slower")
    row = as_json(results, [], 2)["rows"][0]
    assert (row["ratio_to_before"], row["against_before"]) == (0.5, "slower")
    alone = Result("row", speed, {"odradek": values(8), "kafka": values(9)})
    assert "before" not in table([alone])
    assert "ratio_to_before" not in as_json([alone], [], 1)["rows"][0]
