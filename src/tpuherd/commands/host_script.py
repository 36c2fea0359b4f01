"""Runs a short program on one host, beside what its user runs there."""

import asyncio
from dataclasses import dataclass

from tpuherd.commands.command_types import new_command_id, parse_outcome
from tpuherd.errors import NotReached, OperationFailed
from tpuherd.ports import Link, RpcRequest
from tpuherd_host.agent.frames import LOG, STDERR, STDIN, STDOUT
from tpuherd_host.agent.log_records import RecordReader

TIMEOUT_S = 30.0
OUTPUT_MAX = 64 << 20  #: bytes: more is nothing that a short program prints


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """How a program ended, and what it wrote."""

    status: int
    out: str
    err: str


async def run_on_host(
    link: Link, argv: tuple[str, ...], script: bytes = b"", *, timeout_s: float = TIMEOUT_S
) -> ScriptResult:
    """Run it to its end with this standard input; the host keeps nothing of it."""
    id = new_command_id()
    asked = {"id": id, "argv": list(argv), "stdin": True, "keep_s": 0.0}
    written = {STDOUT: bytearray(), STDERR: bytearray()}
    reader = RecordReader()
    try:
        async with (
            asyncio.timeout(timeout_s),
            link.open_stream(RpcRequest(name="run", arguments=asked)) as call,
        ):
            await call.write(STDIN, script)
            await call.send_eof(STDIN)
            while (got := await call.read()) is not None:
                for record in reader.feed(got[1]) if got[0] == LOG else ():
                    if record.port in written:
                        written[record.port] += record.piece
                if sum(map(len, written.values())) > OUTPUT_MAX:
                    await link.call(RpcRequest(name="stop", arguments={"id": id, "grace_s": 0.0}))
                    raise OperationFailed(f"{argv[0]} printed more than {OUTPUT_MAX >> 20} MiB")
            outcome = parse_outcome("", await call.reply())
    except TimeoutError as error:
        await link.call(RpcRequest(name="stop", arguments={"id": id, "grace_s": 0.0}))
        raise NotReached(f"no answer in {timeout_s:g} s") from error
    texts = [written[port].decode(errors="replace") for port in (STDOUT, STDERR)]
    return ScriptResult(outcome.status, *texts)
