"""Compares a transcript with the model: every exchange, list, resource, operation and host.

learned_model.py shows what the model serves; exchange_differences.py, list_differences.py,
lifecycle_differences.py and host_differences.py each look for one family of differences.
"""

from dataclasses import asdict, dataclass
from pathlib import Path

from tpuherd_sim.compare.differences import Difference, Findings
from tpuherd_sim.compare.exchange_differences import compare_exchange
from tpuherd_sim.compare.host_differences import compare_host
from tpuherd_sim.compare.learned_model import learn_model
from tpuherd_sim.compare.lifecycle_differences import compare_lifecycles
from tpuherd_sim.compare.list_differences import compare_lists
from tpuherd_sim.compare.seen_messages import Json
from tpuherd_sim.compare.transcript_file import Transcript, read_transcript


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The result for one transcript."""

    cloud: str
    exchanges: int
    hosts: int
    skipped: int  #: lines that were cut or malformed
    differences: tuple[Difference, ...]

    def as_json(self) -> Json:
        return asdict(self)


def compare_file(file: Path) -> Comparison:
    """Compare a transcript; raises TranscriptError."""
    return compare_transcript(read_transcript(file))


def compare_transcript(transcript: Transcript) -> Comparison:
    findings = Findings()
    model = learn_model()
    for one in transcript.exchanges:
        if not one.repeated:
            compare_exchange(one, model, findings)
    compare_lists(transcript.exchanges, findings)
    compare_lifecycles(transcript, findings)
    for host in transcript.hosts:
        compare_host(host, transcript.cloud, findings)
    return Comparison(
        cloud=transcript.cloud,
        exchanges=len(transcript.exchanges),
        hosts=len(transcript.hosts),
        skipped=transcript.skipped,
        differences=findings.in_order(),
    )
