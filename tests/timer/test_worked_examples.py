"""The worked example of the timing wheel; test_reaper.py has that of its reaper."""

from tests.timer.recording_tasks import WheelHarness


def test_the_example_in_the_docstring_of_the_timing_wheel_is_right(harness: WheelHarness) -> None:
    for delay_ms in (350, 446, 450, 473):
        harness.add(str(delay_ms), delay_ms)
    hands = {}
    for moment in (340, 350, 400, 440, 446, 450, 460, 473):
        assert harness.timer.next_expiration_ms == moment
        harness.move_to(moment)
        hands[moment] = [wheel.current_time_ms for wheel in harness.levels()]
    assert harness.ran_at == {"350": 350, "446": 446, "450": 450, "473": 473}
    assert (hands[340], hands[350], hands[400]) == ([340, 340, 0], [350, 340, 0], [400, 400, 400])
    assert (hands[440], hands[460]) == ([440, 440, 400], [460, 460, 400])
