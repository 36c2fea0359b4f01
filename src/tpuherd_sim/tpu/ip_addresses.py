"""Addresses of workers, used in turn, so that a released one is reused late."""

from tpuherd_sim.model.world import World

#: Hosts in a /24 without its first and last address.
ROW = 254
EXTERNAL_MAX = 256 * ROW
INTERNAL_MAX = 128 * 256 * ROW
#: So many released addresses are kept for later: months of preemptions would use millions.
FREE_MAX = 4096


def allocate_external(world: World, *, recycled: bool = False) -> str | None:
    """Return an external address, or None if all are in use. `recycled`: the last released one."""
    books = world.books
    if recycled and books.external_free:
        return books.external_free.pop()
    if books.external_made < EXTERNAL_MAX and len(books.external_free) <= FREE_MAX:
        number = books.external_made
        books.external_made += 1
        return f"127.{world.settings.network}.{number // ROW}.{number % ROW + 1}"
    return books.external_free.pop(0) if books.external_free else None


def allocate_internal(world: World, *, recycled: bool = False) -> str:
    """Return an address in the world's network."""
    books = world.books
    if recycled and books.internal_free:
        return books.internal_free.pop()
    used_up = books.internal_made >= INTERNAL_MAX or len(books.internal_free) > FREE_MAX
    if used_up and books.internal_free:
        return books.internal_free.pop(0)
    number = books.internal_made
    books.internal_made += 1
    # The first row is reserved for the world: its gateway and its name server.
    row, column = number // ROW + 1, number % ROW + 1
    return f"10.{128 + (row >> 8)}.{row & 255}.{column}"


def release_external(world: World, address: str | None) -> None:
    if address is not None:
        world.books.external_free.append(address)


def release_internal(world: World, address: str) -> None:
    world.books.internal_free.append(address)


def count_free_external(world: World) -> int:
    return EXTERNAL_MAX - world.books.external_made + len(world.books.external_free)


def enclosing_subnet(address: str) -> str:
    """Return the /20 that contains an internal address, for a node's cidrBlock."""
    first, second, third, _ = address.split(".")
    return f"{first}.{second}.{int(third) & 0xF0}.0/20"
