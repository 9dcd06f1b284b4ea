"""newcomer.py [OPTIONS] [PAGE...]: types the commands of README.md and docs/getting-started.md on a fresh machine.

For maintainers, as root, before a release. `make test` runs the same commands with other ports and with what is
installed here. This script shows what a newcomer gets: the commands stand in the pages alone, are typed word for word,
from top to bottom, and what a page shows below a command has to come (digits may differ).

The machine is this one, seen from new namespaces: files that are written go into memory, home and /tmp are empty, there
are no other processes, and no network but a proxy that leads to the registries of Debian, PyPI and npm, and to those
that pip is configured with. The project is a clone of the last commit; `pip install overlane` finds a wheel of it.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

PROJECT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/getting-started.md")
LONG = ("make test",)
"""Left out unless asked for: it takes a quarter of an hour."""
REGISTRIES = (
    *("deb.debian.org", "security.debian.org", "snapshot.debian.org"),
    *("pypi.org", "files.pythonhosted.org", "registry.npmjs.org"),
)
SOCKET = "registries.sock"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pages", nargs="*", default=PAGES, metavar="PAGE", help="Pages (default: both).")
    parser.add_argument("--with-tests", action="store_true", help="Run `make test` too.")
    parser.add_argument("--list", action="store_true", help="Print the commands, and run nothing.")
    given = parser.parse_args()
    plan = [step for page in given.pages for step in steps_of(page) if given.with_tests or step["text"] not in LONG]
    if given.list:
        print(*(f"{one['page']}:{one['line']}: {one['text']}" for one in plan), sep="\n")
        return 0
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        print("newcomer: namespaces take root and the program unshare", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as name:
        return asyncio.run(try_out(plan, Path(name)))


def steps_of(name: str) -> list[dict[str, object]]:
    """Commands, and files that the page wants saved, in the order of the page."""
    sys.path[:0] = [str(PROJECT / "tests"), str(PROJECT / "tests/docs")]
    from doccommands import GOES_ON, command_in
    from docpages import read_page

    steps: list[dict[str, object]] = []
    for block in read_page(name).blocks:
        first = len(steps)
        if "file" in block.notes:
            text = "\n".join(block.lines) + "\n"
            steps.append({"page": name, "line": block.line, "text": f"save {block.notes['file']}", "content": text})
        if block.language not in ("sh", "console"):
            continue
        for number, line in enumerate(block.lines, block.line + 1):
            if (command := command_in(block.language, line)) is not None:
                goes_on = GOES_ON.match(command) is not None
                steps.append({"page": name, "line": number, "text": command, "goes_on": goes_on, "shown": []})
            elif block.language == "console" and steps and line.strip():
                shown = steps[-1]["shown"]
                assert isinstance(shown, list)
                shown.append(line)
        note = block.notes.get("test", "")
        if note == "after Ctrl-C":
            steps[first]["after_end"] = True
        elif note.startswith("shows "):
            steps[-1]["in_time"] = note.removeprefix("shows ")
    return steps


async def try_out(plan: list[dict[str, object]], shared: Path) -> int:
    (shared / "plan.json").write_text(json.dumps(plan))
    shutil.copy(PROJECT / "scripts/newcomer_machine.py", shared)
    clone = ["git", "clone", "--quiet", f"file://{PROJECT}", str(shared / "overlane")]
    subprocess.run(clone, check=True)
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(shared / "wheels")]
    subprocess.run([*wheel, str(shared / "overlane")], check=True)
    asked: set[str] = set()
    allowed = {*REGISTRIES, *configured_registries()}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await pass_on(reader, writer, allowed, asked)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_unix_server(serve, str(shared / SOCKET), limit=1 << 20)
    spaces = ["unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"]
    machine = await asyncio.create_subprocess_exec(
        *spaces, "/usr/bin/python3", str(shared / "newcomer_machine.py"), str(shared)
    )
    status = await machine.wait()
    server.close()
    print("registries that were asked:", ", ".join(sorted(asked)) or "none")
    return status


def configured_registries() -> set[str]:
    """Hosts of the indexes that pip is told to use."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.replace("'", " ")
    return {host for word in listed.split() if (host := urlsplit(word).hostname)}


async def pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowed: set[str], asked: set[str]
) -> None:
    """One request to the proxy: CONNECT, or a whole address."""
    head = await reader.readuntil(b"\r\n\r\n")
    method, target, _ = head.split(b" ", 2)
    address = target.decode() if method != b"CONNECT" else f"//{target.decode()}"
    parts = urlsplit(address)
    host, port = parts.hostname or "", parts.port or (443 if method == b"CONNECT" else 80)
    asked.add(host if host in allowed else f"{host} (refused)")
    if host not in allowed:
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        return
    there, to_there = await asyncio.open_connection(host, port, limit=1 << 20)
    if method == b"CONNECT":
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    else:
        to_there.write(head.replace(target, target.split(host.encode(), 1)[1].lstrip(b":0123456789") or b"/", 1))
    await asyncio.gather(copied(reader, to_there), copied(there, writer))


async def copied(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


if __name__ == "__main__":
    sys.exit(main())
