"""Reads .levanter.yaml and the variables that Levanter's launch.py takes its defaults from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpuherd.errors import InvalidInput
from tpuherd.jobfile.value_types import show_value, suggest_name
from tpuherd.jobfile.yaml_with_lines import FieldPath, YamlDocument, read_yaml

FILE = ".levanter.yaml"
ENV_KEYS = ("env", "accel_env")
#: Keys about images, which herd does not build.
IMAGE_KEYS = (
    "docker_base_image", "docker_repository", "docker_registry", "docker_file", "docker_target",
    "image_name", "image", "repository", "tag", "github_user", "github_token", "extra_context",
)  # fmt: skip
LAUNCH_KEYS = (
    "autodelete", "foreground", "capacity_type", "project", "tpu_name", "tpu_type", "node_count",
    "version", "zone", "retries", "run_id",
)  # fmt: skip
OTHER_KEYS = ("tpu", "subnetwork")
KEYS = (*ENV_KEYS, *LAUNCH_KEYS, *OTHER_KEYS, *IMAGE_KEYS)
YES = frozenset(("1", "true", "yes", "on"))


@dataclass(frozen=True, kw_only=True, slots=True)
class LevanterConfig:
    """The file, checked."""

    values: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str | None] = field(default_factory=dict)  #: None: the caller's own value
    accel_env: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)

    @property
    def image_keys(self) -> list[str]:
        """The keys that have no meaning without an image."""
        return [name for name in IMAGE_KEYS if name in self.values]

    def env_for(self, type_: str, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables for a TPU type: of its generation, then of the type itself.

        A name without a value stands for the caller's variable, if there is one.
        """
        generation = type_.partition("-")[0]
        places = [self.env, self.accel_env.get(generation, {})]
        if type_ != generation:
            places.append(self.accel_env.get(type_, {}))
        found: dict[str, str] = {}
        for place in places:
            for name, value in place.items():
                text = environ.get(name, "") if value is None else value
                if text:
                    found[name] = text
        return found

    def find_value(self, name: str, environ: Mapping[str, str], default: str = "") -> str:
        """Return a default of launch.py: of the environment, else of the file."""
        keys = (name, "tpu") if name == "tpu_name" else (name,)
        in_file = next((self.values[key] for key in keys if key in self.values), default)
        return environ.get(name.upper()) or in_file

    def is_set(self, name: str, environ: Mapping[str, str]) -> bool:
        return self.find_value(name, environ).lower() in YES


def load_config(folder: Path) -> LevanterConfig:
    """Read the file of a folder, if there is one; raise InvalidInput with the first mistake."""
    file = folder / FILE
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return LevanterConfig()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise InvalidInput(f"{FILE} can't be read: {reason}") from error
    return parse_config(text)


def parse_config(text: str) -> LevanterConfig:
    page = read_yaml(text)
    if page.mistakes:
        raise InvalidInput(page.mistakes[0].format_line(FILE))
    content = {} if page.value is None else page.value
    if not isinstance(content, Mapping):
        raise mistake(page, (), "it maps keys to values: zone: us-central2-b, tpu: NAME, …")
    for key in content:
        if key not in KEYS:
            raise mistake(page, (str(key),), f"unknown key: {suggest_name(str(key), KEYS)}")
    values = {
        str(key): plain_text(page, (key,), value)
        for key, value in content.items()
        if key not in ENV_KEYS and value is not None
    }
    of_types = mapping_at(page, ("accel_env",), content.get("accel_env"))
    return LevanterConfig(
        values=values,
        env=read_variables(page, ("env",), content.get("env")),
        accel_env={
            name: read_variables(page, ("accel_env", name), below)
            for name, below in of_types.items()
        },
    )


def read_variables(page: YamlDocument, where: FieldPath, content: Any) -> dict[str, str | None]:
    found = mapping_at(page, where, content)
    return {
        name: None if value is None else plain_text(page, (*where, name), value)
        for name, value in found.items()
    }


def mapping_at(page: YamlDocument, where: FieldPath, content: Any) -> dict[str, Any]:
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise mistake(page, where, f"should map names to values, not {show_value(content)}")
    return {str(name): value for name, value in content.items()}


def plain_text(page: YamlDocument, where: FieldPath, value: Any) -> str:
    """Return a value as it is written in the file: 2 stays 2, and 0.10 stays 0.10."""
    if not isinstance(value, str | int | float):
        raise mistake(page, where, f"should be text, not {show_value(value)}")
    return page.texts.get(where, str(value))


def mistake(page: YamlDocument, where: FieldPath, sentence: str) -> InvalidInput:
    page.add_mistake(where, sentence)
    return InvalidInput(page.mistakes[-1].format_line(FILE))
