"""Stores a slot's current W&B trial for its next node."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from tpuherd_host.train.storage import place

NAME = "trial.json"


@dataclass(frozen=True)
class TrialState:
    """A trial in progress, if any. It contains no secrets."""

    run: str = ""  #: W&B's id; "" for none
    attempt: str = ""  #: the attempt that wrote this
    over: bool = False  #: whether the sweep is over
    words: tuple[str, ...] = ()  #: the program and its arguments
    environ: Mapping[str, str] = field(default_factory=dict)  #: variables that W&B's agent set
    parameters: str = ""  #: the content of the parameter file
    tried: int = 0  #: how often, in this attempt
    before: int = 0  #: steps of this slot's finished trials
    failed: int = 0  #: failed trials in a row


class TrialStore:
    """Stores a slot's trial."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.place = place(f"{environ['HERD_CHECKPOINT'].rstrip('/')}/{environ['RUN_ID']}", environ)
        self.attempt = environ.get("HERD_WORK", "")

    def read(self) -> TrialState:
        try:
            fields = json.loads(self.place.read(NAME))
        except FileNotFoundError:
            return TrialState()
        return TrialState(**{**fields, "words": tuple(fields["words"])})

    def write(self, note: TrialState) -> None:
        fields = asdict(replace(note, attempt=self.attempt))
        self.place.write(NAME, [json.dumps(fields).encode()])
