"""The CPU as a target: schedules, generated library kernels, object code."""
