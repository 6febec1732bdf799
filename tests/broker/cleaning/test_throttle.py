from odradek.broker.cleaning.log_cleaner import BURST_MS, Throttle


def test_io_above_the_configured_rate_is_delayed() -> None:
    throttle = Throttle(1000)
    assert throttle.delay_ms(int(BURST_MS), 10_000) == 0
    assert throttle.delay_ms(500, 10_000) == 500
    assert throttle.delay_ms(100, 10_500) == 100


def test_a_pause_allows_no_more_than_the_burst() -> None:
    throttle = Throttle(1000)
    throttle.delay_ms(1, 0)
    assert throttle.delay_ms(BURST_MS + 250, 1_000_000) == 250


def test_without_a_limit_nothing_is_delayed() -> None:
    throttle = Throttle(1.7976931348623157e308)
    assert throttle.delay_ms(1 << 60, 5) == 0


def test_a_part_of_a_millisecond_is_a_whole_one() -> None:
    throttle = Throttle(7000)
    assert throttle.delay_ms(7 * BURST_MS + 1, 10_000) == 1
