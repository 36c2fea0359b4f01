"""Keeps the last context of each TPU beside the store of jobs, as JSON that people can read.

Contexts are dataclasses of the user's program. Their fields are written, and they are rebuilt by
calling the class of the same name in the running program: a file can't make it run anything else.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from tpuherd.errors import InvalidInput
from tpuherd.files import atomic_write, make_private_folder

VERSION = 1
PLAIN = (str, int, float, bool, type(None))
KEEPABLE = "use dataclasses of text, numbers, lists, tuples and dictionaries"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptContext:
    """What the program knew of a TPU when it last called its callbacks."""

    job_made_at: float  #: of the job that the TPU belongs to: another job has another context
    incarnation: str  #: of the node that creation_callback was called for
    context: Any


def context_file(folder: Path, job: str) -> Path:
    return folder / "tpucare" / f"{job}.json"


def save_context(file: Path, kept: KeptContext, host: str) -> None:
    """Write it atomically, readable by its owner only; InvalidInput if it can't be kept."""
    found = {
        "version": VERSION,
        "job_made_at": kept.job_made_at,
        "incarnation": kept.incarnation,
        "context": encode_value(kept.context, f"the context of {host}"),
    }
    make_private_folder(file.parent)
    atomic_write(file, json.dumps(found, indent=1) + "\n", durable=True)


def load_context(file: Path, host: str) -> KeptContext | None:
    """Return what was kept; None if nothing was. InvalidInput if it does not fit the program."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        if found["version"] != VERSION:
            raise ValueError("another version of herd wrote it")
        return KeptContext(
            job_made_at=float(found["job_made_at"]),
            incarnation=str(found["incarnation"]),
            context=decode_value(found["context"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidInput(
            f"the kept context of {host} can't be used: {error}",
            hint=f"delete {file} to start with None again",
        ) from error


def forget_context(file: Path) -> None:
    file.unlink(missing_ok=True)


def encode_value(value: Any, place: str) -> Any:
    """Return JSON in which every object says of which kind it is."""
    if type(value) in PLAIN:
        return value
    if type(value) is list:
        return [encode_value(one, f"{place}[{at}]") for at, one in enumerate(value)]
    if type(value) is tuple:
        return {"tuple": [encode_value(one, f"{place}[{at}]") for at, one in enumerate(value)]}
    if type(value) is dict:
        pairs = [
            [encode_value(key, f"a key of {place}"), encode_value(one, f"{place}[{key!r}]")]
            for key, one in value.items()
        ]
        return {"dict": pairs}
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        parts = {
            one.name: encode_value(getattr(value, one.name), f"{place}.{one.name}")
            for one in fields(value)
        }
        return {"dataclass": f"{kind.__module__}:{kind.__qualname__}", "fields": parts}
    raise InvalidInput(f"{place} is a {type(value).__name__}, which can't be kept", hint=KEEPABLE)


def decode_value(found: Any) -> Any:
    """Rebuild a value; ValueError, TypeError or KeyError if that is not possible."""
    if isinstance(found, PLAIN):
        return found
    if isinstance(found, list):
        return [decode_value(one) for one in found]
    if "tuple" in found:
        return tuple(decode_value(one) for one in found["tuple"])
    if "dict" in found:
        return {decode_value(key): decode_value(one) for key, one in found["dict"]}
    return rebuild_dataclass(
        str(found["dataclass"]), {name: decode_value(it) for name, it in found["fields"].items()}
    )


def rebuild_dataclass(name: str, values: Mapping[str, Any]) -> Any:
    """Call the dataclass of this name in the running program."""
    module, _, path = name.partition(":")
    kind: Any = sys.modules.get(module)
    for part in path.split("."):
        kind = getattr(kind, part, None)
    if not isinstance(kind, type) or not is_dataclass(kind):
        raise ValueError(f"this program has no dataclass {path}")
    known = {one.name: one.init for one in fields(kind)}
    if unknown := [one for one in values if one not in known]:
        raise ValueError(f"{path} has no field {unknown[0]} any more")
    made = kind(**{name: it for name, it in values.items() if known[name]})
    for name, it in values.items():
        if not known[name]:
            object.__setattr__(made, name, it)
    return made
