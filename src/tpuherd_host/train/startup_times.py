"""Measures the parts of this process's startup until its first step."""

from typing import Any

from tpuherd_host.train import process_env
from tpuherd_host.train.lazy_import import jax

#: JAX's names of its compile times, which include loading cached programs.
COMPILING = frozenset({
    "/jax/core/compile/backend_compile_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
})  # fmt: skip


class Startup:
    """The parts that are known so far, in seconds, under their names in reports."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.compiled_s = 0.0
        self._met_from = 0.0

    def begin_meeting(self) -> None:
        """The script started and has imported its modules."""
        self._met_from = process_env.wall_time()
        self._set_part("python_s", process_env.BEGAN - process_env.process_start_time())
        self._set_part("import_s", self._met_from - process_env.BEGAN)

    def end_meeting(self) -> None:
        """All processes found each other."""
        self._set_part("meet_s", process_env.wall_time() - self._met_from)

    def count_compiling(self) -> None:
        """Listen to JAX's compile times from now on; an older JAX does not report them."""
        listen = getattr(jax.monitoring, "register_event_duration_secs_listener", None)
        if listen is not None:
            listen(self._add_compile_time)

    def finish_first_step(self, first_step_s: float, compiled_before_s: float) -> dict[str, float]:
        """Return all parts after the first step, without what it compiled."""
        compiled_s = self.compiled_s - compiled_before_s
        self._set_part("first_step_s", first_step_s - compiled_s)
        if self.compiled_s:
            self._set_part("compile_s", self.compiled_s)
        return self.parts

    def _add_compile_time(self, event: str, seconds: float, **_more: Any) -> None:
        if event in COMPILING:
            self.compiled_s += seconds

    def _set_part(self, name: str, seconds: float) -> None:
        self.parts[name] = round(max(0.0, seconds), 3)


STARTUP = Startup()
