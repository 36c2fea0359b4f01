"""Reads samples of the host in a thread, because a disk or a service may not answer."""

import _thread

from tpuherd_host.agent.effects.runtime import AgentRuntime
from tpuherd_host.agent.state_machine.messages import HostSampled, ReadSample


def read_sample(runtime: AgentRuntime, effect: ReadSample) -> None:
    """Start a thread, unless the last one still reads."""
    if runtime.sampling:
        return
    runtime.sampling = True
    try:
        _thread.start_new_thread(post_sample, (runtime,))
    except RuntimeError:  # the user's processes leave no room for another thread
        runtime.sampling = False


def post_sample(runtime: AgentRuntime) -> None:
    try:
        sample = runtime.sampler.read_sample()
        runtime.post_event(HostSampled(sample))
    except (OSError, ValueError, LookupError):
        return  # the next one may succeed
    finally:
        runtime.sampling = False
