"""Moves a project's jobs between the file on this machine and PostgreSQL."""

from collections.abc import Mapping

from tpuherd.errors import InvalidInput
from tpuherd.settings.project_access import ProjectScope, resolve_login
from tpuherd.settings.store_address import StoreAddress, parse_store_url, refuse_password


def move_store_to(scope: ProjectScope, url: str, environ: Mapping[str, str], now: float) -> str:
    """Move the jobs into PostgreSQL; return a sentence for the user."""
    address = load_address(url, environ)
    if scope.database is not None and scope.database.url != address.url:
        raise InvalidInput(
            f"the jobs are in {scope.database.title}", hint="herd engine store move here"
        )
    from tpuherd.store.change_kind import move_to_server

    many = move_to_server(scope, address, now, login=resolve_login(environ))
    return (
        f"Moved {count_jobs(many)} to {address.title}. Tell herd where they are:"
        f" export HERD_STORE={address.url}"
    )


def load_address(url: str, environ: Mapping[str, str]) -> StoreAddress:
    refuse_password(url, origin="the URL")
    said = environ.get("HERD_STORE", "")
    if said:  # it may have the password
        known = parse_store_url(said, environ, origin="HERD_STORE")
        if known.url == url:
            return known
    return parse_store_url(url, environ, origin="the URL")


def move_store_here(scope: ProjectScope, address: StoreAddress, now: float) -> str:
    """Move the jobs into a file on this machine; return a sentence for the user."""
    from tpuherd.store.change_kind import move_to_file

    many = move_to_file(scope, address, now)
    return (
        f"Moved {count_jobs(many)} from {address.title} to this machine. Tell herd so:"
        " unset HERD_STORE, or take the store out of the context"
    )


def count_jobs(many: int) -> str:
    return "1 job" if many == 1 else f"{many} jobs"
