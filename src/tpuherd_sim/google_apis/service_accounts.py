"""IAM's service accounts: the identities of nodes."""

import re

from tpuherd_sim.google_apis.links import is_own_project
from tpuherd_sim.google_apis.pagination import take_page
from tpuherd_sim.model.compute_state import ServiceAccount, new_numeric_id
from tpuherd_sim.model.http_types import ApiCall, ApiError, Json
from tpuherd_sim.model.world import World
from tpuherd_sim.model.world_parts import default_account_email
from tpuherd_sim.tpu.errors import resource_info
from tpuherd_sim.tpu.router import Route

ID = re.compile(r"[a-z](?:[-a-z0-9]{4,28}[a-z0-9])")
DISPLAY_MAX = 100
PAGE_MAX = 100
ANY_PROJECT = "-"


def default_account(world: World) -> str:
    """Return the account of nodes that name none, and of the world's user."""
    return default_account_email(world.settings.project_number)


def known_account(world: World, email: str) -> bool:
    """Whether the account exists. Those of other projects can't be looked up, so they do."""
    own = email.endswith(f"@{world.settings.project}.iam.gserviceaccount.com")
    return not own or email in world.services.accounts


def account_json(world: World, account: ServiceAccount) -> Json:
    project = world.settings.project
    answer: Json = {
        "name": f"projects/{project}/serviceAccounts/{account.email}",
        "projectId": project,
        "uniqueId": str(account.id),
        "email": account.email,
        "etag": "MDEwMjE5MjA=",
        "oauth2ClientId": str(account.id),
    }
    if account.display:
        answer["displayName"] = account.display
    if account.description:
        answer["description"] = account.description
    return answer


def check_project(world: World, call: ApiCall) -> None:
    if call.path["project"] != ANY_PROJECT and not is_own_project(world, call.path["project"]):
        permission = "iam.serviceAccounts.list"
        text = f"Permission '{permission}' denied on resource (or it may not exist)."
        raise ApiError(403, "PERMISSION_DENIED", text)


def create_account(world: World, call: ApiCall, now: float) -> Json:
    check_project(world, call)
    id, details = call.body.get("accountId"), call.body.get("serviceAccount") or {}
    if not isinstance(id, str) or not 6 <= len(id) <= 30:
        text = f'The account ID "{id or ""}" does not have a length between 6 and 30.'
        debug = {"@type": "type.googleapis.com/google.rpc.DebugInfo", "detail": text}
        raise ApiError(400, "INVALID_ARGUMENT", text, details=(debug,))
    if not ID.fullmatch(id) or not isinstance(details, dict):
        raise ApiError(400, "INVALID_ARGUMENT", "The account ID is invalid.")  # words assumed
    project = world.settings.project
    email = f"{id}@{project}.iam.gserviceaccount.com"
    name = f"projects/{project}/serviceAccounts/{email}"
    if email in world.services.accounts:
        text = f"Service account {id} already exists within project projects/{project}."
        raise ApiError(409, "ALREADY_EXISTS", text, details=(resource_info(name),))
    account = ServiceAccount(
        email=email,
        id=new_numeric_id(world.services.dice),
        created=now,
        display=str(details.get("displayName") or "")[:DISPLAY_MAX],
        description=str(details.get("description") or "")[:256],
    )
    world.services.accounts[email] = account
    return account_json(world, account)


def find_account(world: World, call: ApiCall) -> ServiceAccount:
    check_project(world, call)
    email = call.path["account"]
    found = world.services.accounts.get(email)
    by_id = (one for one in world.services.accounts.values() if str(one.id) == email)
    found = found or next(by_id, None)
    if found is None:
        raise ApiError(404, "NOT_FOUND", f"Unknown service account: {email}.")
    return found


def get_account(world: World, call: ApiCall, now: float) -> Json:
    return account_json(world, find_account(world, call))


def list_accounts(world: World, call: ApiCall, now: float) -> Json:
    check_project(world, call)
    found = [account_json(world, one) for _, one in sorted(world.services.accounts.items())]
    return take_page("accounts", found, call.query, most=PAGE_MAX)


def delete_account(world: World, call: ApiCall, now: float) -> Json:
    del world.services.accounts[find_account(world, call).email]
    return {}


ALL = "/v1/projects/{project}/serviceAccounts"
ROUTES = (
    Route("POST", ALL, create_account),
    Route("GET", ALL, list_accounts),
    Route("GET", f"{ALL}/{{account}}", get_account),
    Route("DELETE", f"{ALL}/{{account}}", delete_account),
)
