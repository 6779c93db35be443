"""Sessions that initialise, restore, save and stop by themselves."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError
from weft.static.averages import get_global_step
from weft.static.errors import OutOfRangeError
from weft.static.graph import get_default_graph
from weft.static.saver import Saver, latest_checkpoint
from weft.static.session import Session
from weft.static.variable import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
)


class SessionRunArgs(NamedTuple):
    """The values that a hook wants to be fetched and fed beside what the program does.

    >>> weft.static.train.SessionRunArgs("loss").feed_dict is None
    True
    """

    fetches: Any
    feed_dict: Any = None
    options: Any = None


class SessionRunValues(NamedTuple):
    """The values of a hook's fetches.

    >>> weft.static.train.SessionRunValues([1.0]).results
    [1.0]
    """

    results: Any
    options: Any = None
    run_metadata: Any = None


class SessionRunContext:
    """A run as hooks see it.

    >>> context = weft.static.train.SessionRunContext(None, None)
    >>> context.request_stop()
    >>> context.stop_requested
    True
    """

    def __init__(self, session: Any, original_args: SessionRunArgs) -> None:
        self.session, self.original_args = session, original_args
        self.stop_requested = False

    def request_stop(self) -> None:
        """Let ``should_stop`` be true from now on."""
        self.stop_requested = True


class SessionRunHook:
    """Base of hooks: methods that are called before and after runs.

    >>> class Count(weft.static.train.SessionRunHook):
    ...     runs = 0
    ...     def after_run(self, run_context, run_values):
    ...         self.runs += 1
    >>> Count().begin()
    """

    def begin(self) -> None:
        """Called once, before the session is made."""

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called once, after the session was made."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run; may ask for more to be fetched."""

    def after_run(
        self, run_context: SessionRunContext, run_values: SessionRunValues
    ) -> None:
        """Called after each run, with what was asked for."""

    def end(self, session: Any) -> None:
        """Called at the end, if there was no error."""


class StopAtStepHook(SessionRunHook):
    """Asks for a stop after some steps, or at a step.

    >>> weft.static.train.StopAtStepHook(last_step=10).last_step
    10
    """

    def __init__(
        self, num_steps: int | None = None, last_step: int | None = None
    ) -> None:
        if (num_steps is None) == (last_step is None):
            raise ArgumentError("StopAtStepHook: expected num_steps or last_step")
        self.num_steps, self.last_step = num_steps, last_step

    def begin(self) -> None:
        self.step = get_global_step()
        if self.step is None:
            raise ArgumentError("StopAtStepHook: the graph has no global step")

    def after_create_session(self, session: Any, coord: Any) -> None:
        if self.last_step is None:
            assert self.num_steps is not None
            self.last_step = int(session.run(self.step)) + self.num_steps

    def after_run(self, run_context: Any, run_values: Any) -> None:
        assert self.last_step is not None
        if int(run_context.session.run(self.step)) >= self.last_step:
            run_context.request_stop()


class LoggingTensorHook(SessionRunHook):
    """Logs the values of nodes every so many runs.

    >>> weft.static.train.LoggingTensorHook({"loss": "loss:0"}, every_n_iter=10).every
    10
    """

    def __init__(
        self, tensors: Any, every_n_iter: int | None = None, every_n_secs: Any = None,
        at_end: bool = False, formatter: Any = None,
    ) -> None:  # fmt: skip
        names = {getattr(t, "name", t): t for t in tensors}
        self.tensors = tensors if isinstance(tensors, dict) else names
        self.every, self.formatter, self.runs = every_n_iter or 1, formatter, 0

    def before_run(self, run_context: Any) -> SessionRunArgs | None:
        due = self.runs % self.every == 0
        self.runs += 1
        return SessionRunArgs(self.tensors) if due else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        from weft.static import logging

        if run_values.results is not None:
            found = run_values.results
            text = ", ".join(f"{name} = {value}" for name, value in found.items())
            logging.info("%s", self.formatter(found) if self.formatter else text)


class CheckpointSaverHook(SessionRunHook):
    """Saves the variables every so many steps, and at the end.

    >>> weft.static.train.CheckpointSaverHook("folder", save_steps=10).save_steps
    10
    """

    def __init__(
        self, checkpoint_dir: str, save_secs: Any = None, save_steps: int | None = None,
        saver: Any = None, checkpoint_basename: str = "model.ckpt", **ignored: Any,
    ) -> None:  # fmt: skip
        self.folder, self.save_steps = checkpoint_dir, save_steps
        self.saver, self.name = saver, checkpoint_basename

    def begin(self) -> None:
        self.saver = self.saver or Saver()
        self.step = get_global_step()
        os.makedirs(self.folder, exist_ok=True)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if self.save_steps and self.step is not None:
            step = int(run_context.session.run(self.step))
            if step % self.save_steps == 0:
                self._save(run_context.session)

    def end(self, session: Any) -> None:
        self._save(session)

    def _save(self, session: Any) -> None:
        self.saver.save(session, os.path.join(self.folder, self.name), self.step)


class NanTensorHook(SessionRunHook):
    """Stops training, or raises an error, when a loss is NaN.

    >>> weft.static.train.NanTensorHook("loss:0").fails
    True
    """

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True) -> None:
        self.loss, self.fails = loss_tensor, fail_on_nan_loss

    def before_run(self, run_context: Any) -> SessionRunArgs:
        return SessionRunArgs(self.loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if not np.isnan(run_values.results).any():
            return
        if self.fails:
            raise NanLossDuringTrainingError("NanTensorHook: the loss is NaN")
        run_context.request_stop()


class NanLossDuringTrainingError(ArgumentError):
    """The error of ``NanTensorHook``.

    >>> issubclass(weft.static.train.NanLossDuringTrainingError, Exception)
    True
    """


class SummarySaverHook(SessionRunHook):
    """Writes summaries every so many runs.

    >>> weft.static.train.SummarySaverHook(save_steps=5, output_dir="folder").every
    5
    """

    def __init__(
        self, save_steps: int | None = None, save_secs: Any = None,
        output_dir: str | None = None, summary_writer: Any = None, scaffold: Any = None,
        summary_op: Any = None,
    ) -> None:  # fmt: skip
        self.every, self.runs, self.folder = save_steps or 1, 0, output_dir
        self.writer, self.summary = summary_writer, summary_op

    def begin(self) -> None:
        from weft.static.summary import FileWriter, merge_all

        self.step = get_global_step()
        self.summary = merge_all() if self.summary is None else self.summary
        if self.writer is None:
            assert self.folder is not None
            self.writer = FileWriter(self.folder)

    def before_run(self, run_context: Any) -> SessionRunArgs | None:
        self.runs += 1
        if (self.runs - 1) % self.every:
            return None
        return SessionRunArgs([self.summary, [] if self.step is None else self.step])

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_values.results is not None:
            found, step = run_values.results
            step = self.runs if self.step is None else step
            self.writer.add_summary(found, int(step))

    def end(self, session: Any) -> None:
        if self.folder is None:
            self.writer.flush()
        else:
            self.writer.close()


class StepCounterHook(SessionRunHook):
    """Logs how many steps were made a second, every so many runs.

    >>> weft.static.train.StepCounterHook(every_n_steps=50).every
    50
    """

    def __init__(
        self, every_n_steps: int = 100, every_n_secs: Any = None,
        output_dir: str | None = None, summary_writer: Any = None,
    ) -> None:  # fmt: skip
        self.every, self.runs, self.since = every_n_steps, 0, time.perf_counter()

    def after_run(self, run_context: Any, run_values: Any) -> None:
        from weft.static import logging

        self.runs += 1
        if self.runs % self.every == 0:
            now = time.perf_counter()
            logging.info("global_step/sec: %g", self.every / (now - self.since))
            self.since = now


class FinalOpsHook(SessionRunHook):
    """Fetches nodes at the end of a session.

    >>> weft.static.train.FinalOpsHook("loss:0").final_ops_values is None
    True
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: Any = None) -> None:
        self.final_ops, self.feeds = final_ops, final_ops_feed_dict
        self.final_ops_values: Any = None

    def end(self, session: Any) -> None:
        self.final_ops_values = session.run(self.final_ops, self.feeds)


class FeedFnHook(SessionRunHook):
    """Feeds what a function returns, in every run.

    >>> weft.static.train.FeedFnHook(dict).feed_fn()
    {}
    """

    def __init__(self, feed_fn: Any) -> None:
        self.feed_fn = feed_fn

    def before_run(self, run_context: Any) -> SessionRunArgs:
        return SessionRunArgs({}, self.feed_fn())


class MonitoredSession:
    """A session that initialises its variables, calls hooks, and knows when to stop.

    The end of a data set ends a ``with`` block without an error.

    >>> with weft.static.Graph().as_default():
    ...     step = weft.static.train.create_global_step()
    ...     up = step.assign_add(1)
    ...     hooks = [weft.static.train.StopAtStepHook(last_step=3)]
    ...     with weft.static.train.MonitoredTrainingSession(hooks=hooks) as session:
    ...         while not session.should_stop():
    ...             made = session.run(up)
    >>> int(made)
    3
    """

    def __init__(
        self, session_creator: Any = None, hooks: Any = None, checkpoint_dir: Any = None
    ) -> None:
        self.hooks = list(hooks or [])
        self._stop = False
        for hook in self.hooks:
            hook.begin()
        first = [global_variables_initializer(), local_variables_initializer()]
        self.session = Session(get_default_graph())
        self.session.run(first)
        latest = checkpoint_dir and latest_checkpoint(checkpoint_dir)
        if latest:
            Saver(global_variables()).restore(self.session, latest)
        for hook in self.hooks:
            hook.after_create_session(self.session, None)

    @property
    def graph(self) -> Any:
        """The graph that runs."""
        return self.session.graph

    def should_stop(self) -> bool:
        """Whether a hook asked for a stop, or the data ended."""
        return self._stop or self.session.closed

    def run(self, fetches: Any, feed_dict: Any = None, options: Any = None,
            run_metadata: Any = None) -> Any:  # fmt: skip
        """``Session.run``, with the hooks before and after it."""
        context = SessionRunContext(
            self.session, SessionRunArgs(fetches, feed_dict, options)
        )
        asked = [hook.before_run(context) for hook in self.hooks]
        feeds = dict(feed_dict or {})
        for more in asked:
            feeds.update((more and more.feed_dict) or {})
        wanted = [{} if more is None else more.fetches for more in asked]
        try:
            own, *found = self.session.run(
                [fetches, *wanted], feeds, None, run_metadata
            )
        except OutOfRangeError:
            self._stop = True
            raise
        for hook, more, results in zip(self.hooks, asked, found, strict=True):
            hook.after_run(context, SessionRunValues(None if more is None else results))
        self._stop = self._stop or context.stop_requested
        return own

    def __enter__(self) -> MonitoredSession:
        self.session.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        ended = kind is None or issubclass(kind, OutOfRangeError)
        try:
            if ended:
                for hook in self.hooks:
                    hook.end(self.session)
        finally:
            self.session.__exit__(None, None, None)
        return ended and kind is not None

    def close(self) -> None:
        """Call the hooks for the last time, and let go of the values."""
        for hook in self.hooks:
            hook.end(self.session)
        self.session.close()


def MonitoredTrainingSession(
    master: str = "", is_chief: bool = True, checkpoint_dir: str | None = None,
    scaffold: Any = None, hooks: Any = None, chief_only_hooks: Any = None,
    save_checkpoint_secs: Any = None, save_summaries_steps: Any = None,
    save_summaries_secs: Any = None, config: Any = None,
    save_checkpoint_steps: int | None = None, **ignored: Any,
) -> MonitoredSession:  # fmt: skip
    """A monitored session that restores and saves checkpoints in a folder.

    >>> with weft.static.Graph().as_default():
    ...     w = weft.static.Variable(2.0)
    ...     with weft.static.train.MonitoredTrainingSession() as session:
    ...         float(session.run(w))
    2.0
    """
    every = [*(hooks or []), *(chief_only_hooks or [])]
    if checkpoint_dir is not None:
        every.append(
            CheckpointSaverHook(checkpoint_dir, save_steps=save_checkpoint_steps)
        )
    return MonitoredSession(None, every, checkpoint_dir)
