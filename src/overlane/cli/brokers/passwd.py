"""`overlane passwd`: the users file that brokers check passwords against.

Exit status: 0 done, 1 there is no such user to delete, 2 the file, the name or the password is invalid.
"""

import sys
from typing import Annotated

import msgspec
import typer

from overlane.cli.exit_status import fail
from overlane.errors import ConfigError
from overlane.secret import Secret

NO_SUCH_USER = 1

STDIN_BYTES_MAX = 65_536


def passwd(
    users_file: Annotated[str, typer.Argument(metavar="FILE", help="Users file; created if it does not exist.")],
    user: Annotated[str | None, typer.Argument(metavar="USER", help="User name.", show_default=False)] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the user.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="List all users.")] = False,
    from_stdin: Annotated[
        bool, typer.Option("--stdin", help="Read the password from the first line of standard input.")
    ] = False,
    nkey: Annotated[
        str | None, typer.Option("--nkey", metavar="KEY", help="Let the user log in with this public NKey of NATS.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Set a password, add a key, remove a user, or list all users. Running brokers read the file when they reload."""
    # Imported here so that other commands start faster.
    from overlane.node.security.users import (
        BadKey,
        BadName,
        BadPassword,
        add_nkey,
        check_name,
        read_users,
        remove_user,
        set_password,
    )

    if sum((delete, show_list, from_stdin, nkey is not None)) > 1:
        fail("--delete, --list, --stdin and --nkey exclude each other")
    try:
        if show_list:
            if user is not None:
                fail("--list takes no user name")
            names = read_users(users_file).names()
            typer.echo(msgspec.json.encode(names) if as_json else "\n".join(names), nl=as_json or bool(names))
            return
        if user is None:
            fail("a user name or --list is required")
        check_name(user)
        if delete:
            read_users(users_file)
            if not remove_user(users_file, user):
                fail(f"{users_file}: there is no user {user}", NO_SUCH_USER)
            done = "deleted"
        elif nkey is not None:
            done = "added a key of" if add_nkey(users_file, user, nkey) else "already has this key:"
        else:
            done = "added" if set_password(users_file, user, _password(from_stdin)) else "changed"
    except BadName as bad:
        fail(f"invalid name: {bad}", code=bad.error_code)
    except BadPassword as bad:
        fail(f"invalid password: {bad}", code=bad.error_code)
    except BadKey as bad:
        fail(f"invalid key: {bad}", code=bad.error_code)
    except ConfigError as wrong:
        fail(wrong)
    except OSError as refused:
        fail(f"{users_file}: cannot be written: {refused.strerror}")
    typer.echo(msgspec.json.encode({"user": user, "done": done}) if as_json else f"{done} {user}")


def _password(from_stdin: bool) -> Secret:
    if from_stdin:
        return Secret(sys.stdin.buffer.readline(STDIN_BYTES_MAX).rstrip(b"\r\n"))
    if not sys.stdin.isatty():
        fail("cannot prompt for the password without a terminal; use --stdin")
    typed: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return Secret(typed.encode(errors="surrogateescape"))
