"""A slot's current trial of a W&B sweep, where its next node finds it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from tpuherd_host.train.storage import place

NAME = "trial.json"


@dataclass(frozen=True)
class TrialState:
    """A trial in progress, if any. It contains no secrets."""

    run: str = ""  #: W&B's id of it; "": none
    attempt: str = ""  #: ours, in which this was written
    over: bool = False  #: the sweep is
    words: tuple[str, ...] = ()  #: the program and its arguments
    environ: Mapping[str, str] = field(default_factory=dict)  #: what W&B's agent has set
    parameters: str = ""  #: the content of the file with them
    tried: int = 0  #: so often, in this attempt
    before: int = 0  #: steps of this slot's trials that are over
    failed: int = 0  #: trials that did, in a row


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
