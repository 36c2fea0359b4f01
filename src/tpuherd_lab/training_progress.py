"""What a training script has done, saved and lost: one job's progress over its attempts."""

from dataclasses import dataclass, field

from tpuherd_host.train.run import EARLY
from tpuherd_host.train.save_interval import SaveCosts, count_losses
from tpuherd_lab.constants import Constants


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """A time in which the script made steps, and saved."""

    start: float
    end: float
    resumed_s: float  #: the progress with which it began
    reached_s: float  #: and ended
    blocked_s: float  #: how long saves kept it from stepping
    losses: int  #: attempts before it that lost work


@dataclass(kw_only=True, slots=True)
class TrainingProgress:
    """Progress is counted in seconds of training. The script saves by the rule of `Run`."""

    constants: Constants
    fixed_interval_s: float | None = None  #: instead of that rule
    spans: list[Span] = field(default_factory=list)
    durable_s: float = 0.0  #: the progress that the newest checkpoint has
    saved_by: int = 0  #: the attempt that wrote it
    losses: int = 0  #: what that attempt knew of
    at_end: bool = False  #: it ended with this checkpoint

    def add_span(
        self, start: float, end: float, *, life_s: float, attempt: int, until: float, save: bool
    ) -> None:
        """Record that it stepped from `start` to `end`, with the saves that were due.

        What was being written survives if it is durable before `until`. `save`: it saved at the
        end.
        """
        losses = attempt - 1
        if self.saved_by:
            losses = count_losses(attempt, self.saved_by, self.losses, at_end=self.at_end)
        resumed_s = reached_s = self.durable_s
        block_s, write_s = self.constants.save_block_s, self.constants.save_durable_s
        costs = SaveCosts(blocked=[], took=[], usual_s=life_s)
        now, due_s, blocked_s = start, float(EARLY), 0.0
        while now + due_s < end:
            now += due_s
            reached_s += due_s
            if now + block_s + write_s <= until:
                self._note_checkpoint(reached_s, attempt, losses)
            blocked_s += min(block_s, end - now)
            now += block_s
            due_s = self._seconds_until_save(costs, reached_s, losses)
        reached_s += max(0.0, end - now)
        if save and end + block_s + write_s <= until:
            self._note_checkpoint(reached_s, attempt, losses, at_end=True)
        self.spans.append(
            Span(
                start=start,
                end=end,
                resumed_s=resumed_s,
                reached_s=reached_s,
                blocked_s=blocked_s,
                losses=losses,
            )
        )

    def _note_checkpoint(
        self, reached_s: float, attempt: int, losses: int, *, at_end: bool = False
    ) -> None:
        self.durable_s, self.saved_by, self.losses, self.at_end = (
            reached_s, attempt, losses, at_end,
        )  # fmt: skip

    def _seconds_until_save(self, costs: SaveCosts, reached_s: float, losses: int) -> float:
        if self.fixed_interval_s is not None:
            return self.fixed_interval_s
        took_s = self.constants.save_block_s + self.constants.save_durable_s
        if len(costs.blocked) < 1:
            costs.add_blocked(self.constants.save_block_s)
            costs.add_duration(took_s)
        return float(costs.steps_until_save(1.0, reached_s, losses))
