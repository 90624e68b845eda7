"""The times by which an engine without progress is stalled."""

from medley.serving.stall_rule import ProgressClock


def test_activity_delays_the_alarm_to_five_limits_and_no_further() -> None:
    clock = ProgressClock(10, progress_at_s=100)
    assert not clock.is_suspect(102)
    assert clock.is_suspect(102.5)
    assert not clock.is_stalled(109.9, has_samples=True)
    assert clock.is_stalled(110, has_samples=True)
    assert not clock.is_stalled(119.9, has_samples=False)
    assert clock.is_stalled(120, has_samples=False)
    clock.active_at_s = 130
    assert not clock.is_stalled(139.9, has_samples=True)
    assert clock.is_stalled(140, has_samples=True)
    assert not clock.is_stalled(149.9, has_samples=False)
    clock.active_at_s = 149
    assert not clock.is_stalled(149.9, has_samples=True)
    assert clock.is_stalled(150, has_samples=True)
