"""The tunnel through Identity-Aware Proxy, against a stand-in of the proxy."""

import asyncio
import os
import socket
import ssl
import struct
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.conformance.iap_relay import TOKEN, StandIn, stand_in
from tpuherd.commands.console import Console
from tpuherd.commands.ssh_route import describe_route, join_console
from tpuherd.errors import HerdError, NotAllowed, NotReached, OperationFailed
from tpuherd.ports import Host
from tpuherd.remote.connection_pool import ReachedBy
from tpuherd.remote.iap_tunnel import ACK_AFTER, IapRelay, decode_frame, encode_data
from tpuherd.settings.host_routes import Route, RouteKind

HOST = Host(
    node="gpt", zone="us-central2-b", worker=0, incarnation="1", internal_ip="10.1.2.3",
    external_ip=None,
)  # fmt: skip
INSTANCE = "t1v-n-0f996b37-w-0"


async def give_token() -> Mapping[str, str]:
    return {"authorization": TOKEN}


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # the other end was cut off
    finally:
        writer.close()


@asynccontextmanager
async def proxied(
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[tuple[StandIn, IapRelay]]:
    """A stand-in with one instance that echoes, and a client of it."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with stand_in({INSTANCE: ("127.0.0.1", port)}, tls) as found:
            relay = IapRelay(url=found.url, project="demo", auth_headers=give_token)
            try:
                yield found, relay
            finally:
                await relay.close()


def run(work: Callable[[StandIn, IapRelay], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(20), proxied() as (found, relay):
            await work(found, relay)

    asyncio.run(main())


async def fails(relay: IapRelay, instance: str = INSTANCE) -> HerdError:
    with pytest.raises(HerdError) as caught:
        await relay.open_tunnel(HOST, instance)
    return caught.value


def test_bytes_travel_both_ways_and_are_acknowledged() -> None:
    async def work(found: StandIn, relay: IapRelay) -> None:
        reader, writer = await asyncio.open_connection(sock=await relay.open_tunnel(HOST, INSTANCE))
        sent = os.urandom(1_000_003)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.close()
        assert found.asked == [
            {"project": "demo", "zone": "us-central2-b", "instance": INSTANCE,
             "interface": "nic0", "port": "22", "newWebsocket": "True"}
        ]  # fmt: skip
        while found.sent - found.acknowledged > ACK_AFTER + 65_536:  # run() ends an endless wait
            found.heard.clear()
            await found.heard.wait()

    run(work)


def test_ssh_gets_the_bytes_of_a_tunnel_through_its_own_files() -> None:
    async def work(found: StandIn, relay: IapRelay) -> None:
        ours, theirs = socket.socketpair()
        null = os.open(os.devnull, os.O_WRONLY)
        console = Console((theirs.fileno(), theirs.fileno(), null), Path("/"), {}, colour=None)
        route = Route(kind=RouteKind.IAP)
        assert describe_route(ReachedBy(host=HOST, route=route, instance=INSTANCE)) == ["carry"]
        tunnel = await relay.open_tunnel(HOST, INSTANCE)
        joined = asyncio.create_task(join_console(tunnel, console))
        reader, writer = await asyncio.open_connection(sock=ours)
        sent = os.urandom(1_000_003)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        writer.write_eof()
        await joined
        console.close()
        writer.close()
        theirs.close()
        os.close(null)

    run(work)


def test_a_closed_end_closes_the_other() -> None:
    async def work(found: StandIn, relay: IapRelay) -> None:
        reader, writer = await asyncio.open_connection(sock=await relay.open_tunnel(HOST, INSTANCE))
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        assert len(relay._carriers) == 1
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()
        while relay._carriers:
            await asyncio.wait(relay._carriers)

    run(work)


def test_a_proxy_that_goes_away_ends_the_stream() -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            async with proxied() as (_, relay):
                sock = await relay.open_tunnel(HOST, INSTANCE)
                reader, writer = await asyncio.open_connection(sock=sock)
                writer.write(b"x")
                assert await reader.readexactly(1) == b"x"
            assert await reader.read() == b""
            writer.close()

    asyncio.run(main())


def test_what_the_proxy_refuses_is_a_sentence() -> None:
    async def work(found: StandIn, relay: IapRelay) -> None:
        missing = await fails(relay, "t1v-n-none-w-0")
        assert missing.sentence == "IAP can't find t1v-n-none-w-0"
        found.denied.add(INSTANCE)
        denied = await fails(relay)
        assert isinstance(denied, NotAllowed)
        assert denied.sentence == f"your account may not use IAP for {INSTANCE}"
        found.denied.clear()
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            found.instances = {INSTANCE: unused.getsockname()}
            closed = await fails(relay)
        assert closed.sentence == f"IAP can't reach port 22 of {INSTANCE}"
        assert "35.235.240.0/20" in closed.hint
        unnamed = await fails(relay, "")
        assert "instance name is not known yet" in unnamed.sentence

    run(work)


def test_a_wrong_token_a_wrong_path_and_no_proxy_at_all() -> None:
    async def work(found: StandIn, relay: IapRelay) -> None:
        relay.url = found.url.replace("v4", "v3")
        assert (await fails(relay)).sentence == "IAP refuses the connection (HTTP 404)"

        async def give_nothing() -> Mapping[str, str]:
            return {}

        relay.auth_headers = give_nothing
        refused = await fails(relay)
        assert isinstance(refused, NotAllowed)
        assert "roles/iap.tunnelResourceAccessor" in refused.hint
        relay.url = "ws://127.0.0.1:1/v4"
        nowhere = await fails(relay)
        assert isinstance(nowhere, NotReached)
        assert nowhere.sentence.startswith("IAP can't be reached")

    run(work)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of this machine with its key; it is its own authority."""
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", f"{tmp_path}/key.pem", "-out", f"{tmp_path}/cert.pem"]
    subprocess.run([*words.split(), *names, *files], check=True, capture_output=True)
    return tmp_path / "cert.pem"


def tls_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    return context


async def echo_by_gcloud(url: str, sent: bytes, folder: Path) -> bytes:
    """What Google's own client brings back through the tunnel."""
    (folder / "token").write_text(TOKEN.removeprefix("Bearer "))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(folder / "token"),
        "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": str(folder / "cert.pem"),
        "CLOUDSDK_CORE_PROJECT": "demo",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
    }
    command = f"gcloud compute start-iap-tunnel {INSTANCE} 22 --listen-on-stdin"
    process = await asyncio.create_subprocess_exec(
        *command.split(),
        "--zone=us-central2-b",
        f"--iap-tunnel-url-override={url}",
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(sent)
    try:
        return await process.stdout.readexactly(len(sent))
    except asyncio.IncompleteReadError as error:
        return error.partial
    finally:
        with suppress(ProcessLookupError):
            process.kill()  # after the end of its input it would wait for half a minute
        await process.communicate()


@pytest.mark.real
@pytest.mark.needs("gcloud", "openssl")
def test_gcloud_takes_the_stand_in_for_the_proxy(tmp_path: Path, certificate: Path) -> None:
    """Google's own client sends the same request, and speaks with the stand-in as ours does."""

    async def main() -> None:
        async with asyncio.timeout(60), proxied(tls_context(certificate)) as (found, relay):
            sent = os.urandom(200_003)
            assert await echo_by_gcloud(found.url, sent, tmp_path) == sent
            (await relay.open_tunnel(HOST, INSTANCE)).close()
            await asyncio.wait(relay._carriers)
            assert found.asked[0] == found.asked[1]
            assert found.acknowledged > 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate))
        asyncio.run(main())


@pytest.mark.needs("openssl")
def test_a_proxy_without_a_trusted_certificate_gets_nothing(certificate: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(20), proxied(tls_context(certificate)) as (found, relay):
            assert "CERTIFICATE_VERIFY_FAILED" in (await fails(relay)).sentence
            assert found.asked == []

    asyncio.run(main())


@pytest.mark.parametrize("message", [b"", b"\0", b"\0\4", b"\0\7\0", encode_data(b"abc")[:-1]])
def test_a_cut_off_message_is_an_error(message: bytes) -> None:
    with pytest.raises(OperationFailed, match="malformed message"):
        decode_frame(message)


def test_an_unknown_tag_is_ignored() -> None:
    assert decode_frame(struct.pack(">H", 9) + b"later").tag == 9
