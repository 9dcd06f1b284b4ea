"""Files that contain secrets: users with their hashes, private keys, the admin token.

They are written with mode 0600, completely or not at all: a new file replaces the old one only when it is on disk.
Messages name the file and never its content.
"""

import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from overlane.errors import ConfigError, Fault
from overlane.secret import Secret

FILE_BYTES_MAX = 64 * 2**20
TOKEN_BYTES_MIN = 16
TOKEN_BYTES_MAX = 4_096


def read_secret_file(path: str | Path, allowed: str) -> bytes:
    """What is in the file; ConfigError, which says what is allowed instead, when it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as refused:  # ValueError: a path with a null in it
        raise ConfigError([Fault(str(path), 0, "", f"no way to read it ({reason_of(refused)})", allowed)]) from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError([Fault(str(path), 0, "", "a file of more than 64 MiB", allowed)])
    return content


def read_token(path: str | Path) -> Secret:
    """The token in a file, without the white space around it; ConfigError when there is none, or a weak one."""
    allowed = f"a readable file with one line of {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} bytes without blanks"
    token = read_secret_file(path, allowed).strip()
    if not TOKEN_BYTES_MIN <= len(token) <= TOKEN_BYTES_MAX:
        raise ConfigError([Fault(str(path), 0, "", f"a token of {len(token)} bytes", allowed)])
    if not all(0x21 <= byte < 0x7F for byte in token):
        raise ConfigError([Fault(str(path), 0, "", "a token with blanks or signs beyond ASCII", allowed)])
    return Secret(token)


def others_can_read(path: str | Path) -> bool:
    """Whether more than the owner can read the file: worth a warning."""
    try:
        return bool(Path(path).stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def warning_of(path: str | Path, what: str) -> str | None:
    """What to warn of where others than its owner can read a secret file; None if they cannot."""
    if not others_can_read(path):
        return None
    mode = stat.S_IMODE(Path(path).stat().st_mode)
    return f"{what} {path} has mode {mode:04o}: others than its owner can read it; chmod 600 {path}"


def rewrite_secret_file(path: str | Path, change: Callable[[bytes | None], bytes]) -> None:
    """Replace what is in the file, None where there is no file yet, by what `change` makes of it.

    Changes made at the same time by several processes happen one after the other. OSError when the file cannot be
    written; the old one is then as it was.
    """
    # The file itself, not a link to it; and a new file beside it, since only within a directory it can take its place.
    target = Path(os.path.realpath(path))
    directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        old = target.read_bytes() if target.exists() else None
        _replace(target, change(old))
        os.fsync(directory)
    finally:
        os.close(directory)


def _replace(target: Path, content: bytes) -> None:
    new = target.with_name(f".{target.name}.new")
    # Left behind by a process that died; the lock is ours, so nobody is writing it.
    new.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with suppress(OSError):  # only the administrator can keep another owner, such as the broker's user
                owner = target.stat()
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        new.replace(target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def reason_of(refused: OSError | ValueError) -> str:
    """Why the system refused, as people say it."""
    return refused.strerror if isinstance(refused, OSError) and refused.strerror else str(refused)
