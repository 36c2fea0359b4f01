"""Listening sockets of simulated hosts: accepted connections are released at once."""

import asyncio
import os
import socket

from tpuherd_sim.ssh.accept_loop import Acceptor


def listening() -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    return listener


def test_a_socket_that_reuses_a_descriptor_is_accepted() -> None:
    async def scene() -> None:
        listener = listening()
        number = listener.fileno()
        acceptor = Acceptor(listener, lambda end, _: end.close())
        await asyncio.sleep(0)
        acceptor.stop()
        listener.close()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            if ours.fileno() != number:  # as the next boot of a host has it
                os.dup2(ours.fileno(), number)
            heard = asyncio.Event()
            asyncio.get_running_loop().add_reader(number, heard.set)
            await asyncio.sleep(0)
            theirs.send(b"up")
            async with asyncio.timeout(5):
                await heard.wait()
            asyncio.get_running_loop().remove_reader(number)

    asyncio.run(scene())


def test_connections_are_accepted_until_it_stops() -> None:
    async def scene() -> None:
        listener = listening()
        came: list[socket.socket] = []
        first = asyncio.Event()

        def welcome(end: socket.socket, _: object) -> None:
            came.append(end)
            first.set()

        acceptor = Acceptor(listener, welcome)
        with listener, socket.create_connection(listener.getsockname()):
            async with asyncio.timeout(5):
                await first.wait()
            acceptor.stop()
            acceptor.stop()
            with socket.create_connection(listener.getsockname()):
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        assert len(came) == 1
        came[0].close()

    asyncio.run(scene())
