"""Fields that join what belongs together: `network` and `stall`, mappings or a plain value.

Job files and stored jobs may name a part as a field of its own: `first_step: 2h` is read as
`stall: {first: 2h}`.
"""

from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from tpuherd.jobfile.job_spec import Network, Stall
from tpuherd.jobfile.value_types import FLAG, duration_type, list_type, record_type, text_type

if TYPE_CHECKING:
    from tpuherd.jobfile.yaml_with_lines import YamlDocument

RESOURCE = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
#: By field of its own: the field that it is a part of, and its name there.
PARTS = {
    "subnetwork": ("network", "subnetwork"),
    "external_ips": ("network", "external_ips"),
    "tags": ("network", "tags"),
    "first_step": ("stall", "first"),
}
#: By joined field: the part that a plain value stands for.
PLAIN = {"network": "name", "stall": "step"}
LIMIT = duration_type(10.0, never=inf)
STALL = record_type(Stall, PLAIN["stall"], step=LIMIT, first=LIMIT)
NETWORK = record_type(
    Network,
    PLAIN["network"],
    name=text_type(r"[A-Za-z0-9/._-]+", "a network"),
    subnetwork=text_type(r"[A-Za-z0-9/._-]+", "a subnetwork"),
    external_ips=FLAG,
    tags=list_type(text_type(RESOURCE, "a network tag"), none=True),
)


def join_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with each part in its field; a part that is named twice stays outside."""
    joined = dict(document)
    for name in PARTS:
        if name not in joined:
            continue
        field, part = locate_part(joined, (name,), joined[name])
        if part not in joined.get(field, ()):
            joined[field] = {**joined.get(field, {}), part: joined.pop(name)}
    return joined


def join_page(page: "YamlDocument") -> dict[str, Any]:
    """Return the document of a page with each part in its field; its line is known there too."""
    joined = join_fields(page.value)
    for name in PARTS.keys() & page.value.keys() - joined.keys():
        page.lines.setdefault(PARTS[name], page.line_of((name,)))
    return joined


def locate_part(document: dict[str, Any], where: tuple[str, ...], value: Any) -> tuple[str, ...]:
    """Return where to set a value, in a joined document; a plain value on the way gets its name."""
    field, *below = (*PARTS.get(where[0], where[:1]), *where[1:])
    if field not in PLAIN:
        return where
    has_parts = isinstance(document.get(field), Mapping)
    if below and field in document and not has_parts:
        document[field] = {PLAIN[field]: document[field]}
    if not below and has_parts and value is not None and not isinstance(value, Mapping):
        below = [PLAIN[field]]
    return (field, *below)


def change_fields(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with these fields changed; None removes a field or a part."""
    changed = join_fields(document)
    for name, value in changes.items():
        field, *below = locate_part(changed, (name,), value)
        new = {**changed.get(field, {}), below[0]: value} if below else value
        changed[field] = without_none(new) if below else new
    return without_none(changed)


def without_none(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value is not None}


def split_network(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return each part of a document's network under a name of its own, as digests have them."""
    network = document.get("network")
    if not isinstance(network, Mapping):
        return {"network": network}
    return {"network" if part == PLAIN["network"] else part: it for part, it in network.items()}
