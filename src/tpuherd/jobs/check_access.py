"""Whether the cloud can be asked at all, before anything is promised."""

from tpuherd.errors import NotReached, OperationFailed
from tpuherd.jobs.open_project import Session
from tpuherd.model.trouble import CLOUD


async def check_access(here: Session) -> bool:
    """A token and one list. NotAllowed: nobody is logged in, or may look; false: no answer now."""
    cloud = await here.cloud()
    try:
        await cloud.check_access()
    except (NotReached, OperationFailed) as error:
        note = here.store.troubles.record_trouble
        note(CLOUD, error.sentence, hint=error.hint, now=here.clock.now())
        await here.talk.show_message(
            f"{error.sentence}; the job is stored, and nodes are asked for when the cloud answers"
        )
        return False
    here.store.troubles.end_trouble(CLOUD)
    return True
