"""The machine of newcomer.py, from within: makes it and types the commands. Needs nothing but Python.

Namespaces are new already. The root is an overlay of this machine's, whose changes are in memory. One shell runs the
commands of a page; those that run until Ctrl-C get one each, as in further terminals, and are ended before the next
overlay is started and when the page ends.
"""

import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

HOME = Path("/home/newcomer")
EMPTY = ("/tmp", "/root", "/home", "/var/tmp", "/run", "/dev/shm")
PROXY_PORT = 3128
LONG_S, SHORT_S, SHOWN_S = 3_600.0, 180.0, 60.0
END = "the-command-has-ended"
ADMIN_PORTS = range(8001, 8006)


def main() -> int:
    shared = Path(sys.argv[1])
    plan = json.loads((shared / "plan.json").read_text())
    enter(make_root(shared))
    threading.Thread(target=lead_to_registries, daemon=True).start()
    failed = 0
    for page in dict.fromkeys(step["page"] for step in plan):
        failed += follow(page, [step for step in plan if step["page"] == page])
    print(f"\n{len(plan)} steps, {failed} failed", flush=True)
    return 1 if failed else 0


# The machine


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True)


def make_root(shared: Path) -> Path:
    """An overlay in memory on the root, with empty homes, and what is needed of the project in it."""
    run("mount", "--make-rprivate", "/")
    memory = Path("/mnt")
    run("mount", "-t", "tmpfs", "tmpfs", memory)
    for name in ("upper", "work", "root"):
        (memory / name).mkdir()
    root = memory / "root"
    run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={memory}/upper,workdir={memory}/work", root)
    run("mount", "--rbind", "/dev", root / "dev")
    run("mount", "--rbind", "/sys", root / "sys")
    run("mount", "-t", "proc", "proc", root / "proc")
    for name in EMPTY:
        if (root / name[1:]).is_dir():
            run("mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", root / name[1:])
    home = root / str(HOME)[1:]
    home.mkdir(parents=True)
    shutil.move(shared / "overlane", home / "overlane")
    (root / "var/tmp/registry").mkdir(parents=True)
    run("mount", "--bind", shared, root / "var/tmp/registry")
    return root


def enter(root: Path) -> None:
    os.chroot(root)
    os.chdir(HOME / "overlane")
    run("ip", "link", "set", "lo", "up")
    ctypes.CDLL(None).sethostname(b"newcomer", 8)


def lead_to_registries() -> None:
    """127.0.0.1:3128 leads to the proxy outside."""
    listener = socket.create_server(("127.0.0.1", PROXY_PORT))
    while True:
        inside, _ = listener.accept()
        outside = socket.socket(socket.AF_UNIX)
        outside.connect("/var/tmp/registry/registries.sock")
        for one, other in ((inside, outside), (outside, inside)):
            threading.Thread(target=copy, args=(one, other), daemon=True).start()


def copy(reader: socket.socket, writer: socket.socket) -> None:
    try:
        while data := reader.recv(1 << 16):
            writer.sendall(data)
        writer.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def environment() -> dict[str, str]:
    proxy = f"http://127.0.0.1:{PROXY_PORT}"
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), proxy)
    return {
        "HOME": str(HOME),
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
        "PIP_FIND_LINKS": "/var/tmp/registry/wheels",  # as if this release had been published
        **proxies,
    }


# Following a page


class Terminal:
    """A shell, or a command that runs until Ctrl-C."""

    def __init__(self, command: str = "", at: str = "", path: dict[str, str] | None = None) -> None:
        self.said = ""
        words = ["bash", "--norc", "-c", f"exec {command}"] if command else ["bash", "--norc"]
        self.process = subprocess.Popen(
            words,
            cwd=at or None,
            env=path or environment(),
            stdin=subprocess.DEVNULL if command else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            self.said += data.decode(errors="replace")

    def type(self, command: str, within_s: float) -> tuple[int, str]:
        """Status and output. Further commands see what it did to the shell."""
        assert self.process.stdin is not None
        before = len(self.said)
        self.process.stdin.write(f"{command}\necho {END} $?\n".encode())
        self.process.stdin.flush()
        until = time.monotonic() + within_s
        while (found := re.search(rf"^{END} (\d+)$", self.said[before:], re.MULTILINE)) is None:
            if time.monotonic() > until or self.process.poll() is not None:
                return -1, self.said[before:] + "\n(did not end)"
            time.sleep(0.1)
        return int(found[1]), self.said[before:][: found.start()]

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(SHORT_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return -1


def follow(page: str, steps: list[dict[str, Any]]) -> int:
    """How many steps fail."""
    shell, failed = Terminal(), 0
    others: list[Terminal] = []
    for step in steps:
        began_s, text = time.monotonic(), step["text"]
        if text.startswith("overlane up") or step.get("after_end"):
            failed += end_all(others)
        if "content" in step:
            Path(text.removeprefix("save ")).write_text(step["content"])
            fault = ""
        elif step["goes_on"]:
            fault = start(shell, others, text, step["shown"])
        else:
            fault = finish(shell, text, step["shown"], step.get("in_time", ""))
        took_s = time.monotonic() - began_s
        print(f"{'FAILED' if fault else 'ok':6} {took_s:6.1f} s  {page}:{step['line']}: {text}", flush=True)
        if fault:
            failed += 1
            print("\n".join(f"         | {line}" for line in fault.splitlines()[-40:]), flush=True)
    failed += end_all(others)
    os.killpg(shell.process.pid, signal.SIGKILL)
    return failed


def start(shell: Terminal, others: list[Terminal], command: str, shown: list[str]) -> str:
    """In a further terminal, with the environment and at the place of the first; what is wrong."""
    _, told = shell.type("pwd && env -0 | tr '\\0\\n' '\\n\\t'", SHORT_S)
    at, *pairs = told.splitlines()
    clients = connected()
    other = Terminal(command, at, dict(one.split("=", 1) for one in pairs if "=" in one))
    others.append(other)
    until = time.monotonic() + SHOWN_S
    while time.monotonic() < until and other.process.poll() is None:
        if not missing(shown, other.said) and (shown or is_there(command, other.said, clients)):
            return ""
        time.sleep(0.2)
    lacks = f"does not show: {missing(shown, other.said)}"
    return f"{other.said}\n{lacks if other.process.poll() is None else f'ended with {other.process.poll()}'}"


def is_there(command: str, said: str, clients: int) -> bool:
    """Whether a command for which the page shows nothing does its work. `clients`: of all brokers before it."""
    return connected() > clients if command.startswith("overlane sub ") else "http://" in said or "ready" in said


def finish(shell: Terminal, command: str, shown: list[str], in_time: str) -> str:
    within_s = LONG_S if command.startswith(("make ", "pip ")) else SHORT_S
    until = time.monotonic() + SHOWN_S
    while True:
        status, said = shell.type(command, within_s)
        lacks = missing(shown, said)
        if status or lacks:
            return f"{said}\nended with {status}" + (f"; does not show: {lacks}" if lacks else "")
        if in_time in said:
            return ""
        if time.monotonic() > until:
            return f"{said}\ndoes not show: {in_time}"
        time.sleep(1.0)


def missing(shown: list[str], said: str) -> list[str]:
    """Lines of the page that did not come; digits and the width of columns may be others."""
    come = {alike(line) for line in said.splitlines()}
    return [line for line in shown if alike(line) not in come and line.strip() != "..."]


def alike(line: str) -> str:
    return re.sub(r"\d+", "0", " ".join(line.split()))


def connected() -> int:
    """Clients of all brokers together."""
    total = 0
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for port in ADMIN_PORTS:
        try:
            with opener.open(f"http://127.0.0.1:{port}/clients?limit=1", timeout=5) as answer:
                total += json.load(answer)["total"]
        except OSError:
            pass
    return total


def end_all(others: list[Terminal]) -> int:
    """Ctrl-C to each, the youngest first; how many end badly."""
    failed = 0
    while others:
        other = others.pop()
        status = other.process.poll()
        status = other.end() if status is None else status
        if status != 0:
            failed += 1
            print(f"FAILED          a command ended with {status} on Ctrl-C:\n{other.said[-2000:]}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
