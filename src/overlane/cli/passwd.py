"""`overlane passwd`: the users file that brokers check passwords against.

Exit status: 0 done, 1 there is no such user to delete, 2 the file, the name or the password is wrong.
"""

import sys
from typing import Annotated, NoReturn

import msgspec
import typer

from overlane.errors import ConfigError
from overlane.mqtt.secret import Secret

NO_SUCH_USER = 1
BAD_REQUEST = 2

STDIN_BYTES_MAX = 65_536


def passwd(
    users_file: Annotated[str, typer.Argument(metavar="FILE", help="The users file; made where there is none.")],
    user: Annotated[str | None, typer.Argument(metavar="USER", help="The user's name.", show_default=False)] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove the user.")] = False,
    show_list: Annotated[bool, typer.Option("--list", help="Print the names of all users.")] = False,
    from_stdin: Annotated[
        bool, typer.Option("--stdin", help="Read the password from standard input, its first line.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done, or the list, as JSON.")] = False,
) -> None:
    """Give a user a password, remove a user, or list them. Running brokers take it up when they reload."""
    # Here, not above: the other commands start sooner without it.
    from overlane.node.users import BadName, BadPassword, check_name, read_users, remove_user, set_password

    if sum((delete, show_list, from_stdin)) > 1:
        _refuse("only one of --delete, --list and --stdin makes sense")
    try:
        if show_list:
            if user is not None:
                _refuse("--list shows all users: leave out the name")
            names = read_users(users_file).names()
            typer.echo(msgspec.json.encode(names) if as_json else "\n".join(names), nl=as_json or bool(names))
            return
        if user is None:
            _refuse("the name of a user is needed, or --list")
        check_name(user)
        if delete:
            read_users(users_file)
            if not remove_user(users_file, user):
                _refuse(f"{users_file}: there is no user {user}", NO_SUCH_USER)
            done = "deleted"
        else:
            done = "added" if set_password(users_file, user, _password(from_stdin)) else "changed"
    except (BadName, BadPassword) as bad:
        _refuse(f"{'name' if isinstance(bad, BadName) else 'password'} refused: {bad}")
    except ConfigError as wrong:
        _refuse(str(wrong))
    except OSError as refused:
        _refuse(f"{users_file}: cannot be written: {refused.strerror}")
    typer.echo(msgspec.json.encode({"user": user, "done": done}) if as_json else f"{done} {user}")


def _password(from_stdin: bool) -> Secret:
    if from_stdin:
        return Secret(sys.stdin.buffer.readline(STDIN_BYTES_MAX).rstrip(b"\r\n"))
    if not sys.stdin.isatty():
        _refuse("no terminal to ask for the password on; --stdin reads it from standard input")
    typed: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return Secret(typed.encode(errors="surrogateescape"))


def _refuse(reason: str, status: int = BAD_REQUEST) -> NoReturn:
    typer.echo(f"overlane: {reason}", err=True)
    raise typer.Exit(status)
