"""Whether the cloud can be asked at all, before anything is promised."""

from tpuherd.errors import Broken, NotReached
from tpuherd.jobs.open_project import Desk
from tpuherd.model.trouble import CLOUD


async def check_access(here: Desk) -> bool:
    """A token and one list. NotAllowed: nobody is logged in, or may look; false: no answer now."""
    cloud = await here.cloud()
    try:
        await cloud.check_access()
    except (NotReached, Broken) as error:
        note = here.store.troubles.note
        note(CLOUD, error.sentence, hint=error.hint, now=here.clock.now())
        await here.talk.tell(
            f"{error.sentence}; the job is stored, and nodes are asked for when the cloud answers"
        )
        return False
    here.store.troubles.end(CLOUD)
    return True
