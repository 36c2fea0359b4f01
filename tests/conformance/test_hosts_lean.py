"""What a lean SSH connection takes at once is what came, in order; what is forged ends it."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import asyncssh
import pytest

from tpuherd.remote.asyncssh_patches import AUTHENTICATED, lean

LOOPBACK = "127.0.0.1"
MANY = 3 << 20
PIECES = (1, 100, 5_000, 32_768, 100_000)


def said(seed: int) -> bytes:
    return random.Random(seed).randbytes(MANY)


async def speak(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """Says what it is asked for, on both ports, in pieces of many lengths."""
    seed = int(process.command or 0)
    dice, text, place = random.Random(seed), said(seed), 0
    while place < MANY:
        piece = text[place : place + dice.choice(PIECES)]
        process.stdout.write(piece)
        process.stderr.write(piece[:7])
        await process.stdout.drain()
        place += len(piece)
    process.exit(seed)


class Open(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False


@asynccontextmanager
async def connected(cipher: str, rekey: int) -> AsyncIterator[asyncssh.SSHClientConnection]:
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen(
        LOOPBACK, 0, server_factory=Open, server_host_keys=[key], process_factory=speak,
        encoding=None, rekey_bytes=rekey,
    )  # fmt: skip
    async with server:
        connection = await asyncssh.connect(
            LOOPBACK, server.get_port(), known_hosts=None, config=None, username="one",
            agent_path=None, client_keys=None, encryption_algs=[cipher], compression_algs=None,
        )  # fmt: skip
        async with lean(connection):
            yield connection


def met(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(main())


@pytest.mark.parametrize("cipher", [*sorted(AUTHENTICATED), "chacha20-poly1305@openssh.com"])
@pytest.mark.parametrize("rekey", [1 << 30, 200_000])
def test_channels_side_by_side_say_all_they_say(cipher: str, rekey: int) -> None:
    async def work() -> None:
        async with connected(cipher, rekey) as connection:
            seeds = range(1, 4)
            runs = (connection.run(str(seed), encoding=None, window=1 << 17) for seed in seeds)
            for seed, done in zip(seeds, await asyncio.gather(*runs), strict=True):
                assert done.stdout == said(seed)
                assert done.exit_status == seed

    met(work)


@pytest.mark.parametrize("length", [16, 32_000, 1 << 30])
def test_a_forged_packet_ends_the_connection(length: int) -> None:
    async def work() -> None:
        async with connected("aes128-gcm@openssh.com", 1 << 30) as connection:
            forged = length.to_bytes(4, "big") + bytes(min(length, 1 << 16) + 16)
            connection.data_received(forged)
            await connection.wait_closed()
            with pytest.raises(asyncssh.Error):
                await connection.run("1")

    met(work)
