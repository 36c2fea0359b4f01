"""Stands in for OpenSSH's client where there is none: -i KEY -p PORT USER@HOST COMMAND."""

import asyncio
import sys

import asyncssh


async def run(key: str, port: str, target: str, command: str) -> int:
    """Run the command there with our three streams; its exit status."""
    user, _, host = target.rpartition("@")
    async with asyncssh.connect(
        host, int(port), username=user, client_keys=[key], known_hosts=None, config=None
    ) as connection:
        done = await connection.run(command, stdin=sys.stdin, stdout=sys.stdout, stderr=sys.stderr)
        return 255 if done.exit_status is None else done.exit_status


def main() -> None:
    """Exit as ssh does."""
    *_, key, _, port, target, command = sys.argv
    try:
        sys.exit(asyncio.run(run(key, port, target, command)))
    except (OSError, asyncssh.Error) as error:
        print(f"ssh: {target}: {error}", file=sys.stderr)
        sys.exit(255)


if __name__ == "__main__":
    main()
