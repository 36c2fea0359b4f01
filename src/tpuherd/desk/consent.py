"""Whether code that was taken may leave this machine."""

from tpuherd.desk.desk import Talk
from tpuherd.hosts.snapshot import Snapshot
from tpuherd.hosts.snapshot_archive import Archive

FINDINGS_MAX = 5


async def consented(snapshot: Snapshot, archive: Archive, talk: Talk) -> bool:
    """Tell what was noted; ask about what looks secret or is large, once for all."""
    for note in snapshot.notes:
        await talk.tell(note)
    if not snapshot.findings:
        return True
    whys = [finding.why for finding in snapshot.findings]
    more = len(whys) - FINDINGS_MAX
    said = "; ".join(whys[:FINDINGS_MAX]) + (f"; and {more} more" if more > 0 else "")
    if not await talk.agree(f"{said} (to leave it here, name it in .herdignore)"):
        return False
    archive.approve(snapshot.findings)
    return True
