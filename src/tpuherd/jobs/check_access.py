"""Checks that the cloud can be asked at all, before a job is submitted."""

from tpuherd.errors import NotReached, OperationFailed
from tpuherd.jobs.open_project import Session
from tpuherd.model.trouble import CLOUD


async def check_access(here: Session) -> bool:
    """Get a token and one list. False: the cloud does not answer now. Raises NotAllowed."""
    cloud = await here.cloud()
    try:
        await cloud.check_access()
    except (NotReached, OperationFailed) as error:
        note = here.store.troubles.record_trouble
        note(CLOUD, error.sentence, hint=error.hint, now=here.clock.now())
        await here.talk.show_message(
            f"{error.sentence}; the job is saved; nodes are requested when the cloud answers"
        )
        return False
    here.store.troubles.end_trouble(CLOUD)
    return True
