"""What a function of the user gets and returns.

    def halve(message: FunctionMessage) -> FunctionMessage | bytes | None:
        ...

It returns the message, changed or not, or bytes for a new payload, or None to drop it. Whatever it raises makes the
message a dead letter. It runs in a process of its own (`node.mediation`), to which messages go as MessagePack.
"""

from collections.abc import Callable
from importlib import import_module
from typing import cast

import msgspec

from overlane.mediation.rule import RuleFailed


class FunctionMessage(msgspec.Struct, kw_only=True):
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    content_type: str | None = None
    properties: list[tuple[str, str]] = []


Function = Callable[[FunctionMessage], "FunctionMessage | bytes | None"]


def find_function(name: str) -> Function:
    """RuleFailed if there is none of this name."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except Exception as error:  # a module of the user's may raise anything
        raise RuleFailed(f"{name}: {type(error).__name__}: {str(error)[:200]}") from None
    if not callable(found):
        raise RuleFailed(f"{name} is not a function")
    return cast("Function", found)


def apply(function: Function, message: FunctionMessage) -> FunctionMessage | None:
    """RuleFailed with what the function has raised, or if it returns something else."""
    try:
        returned = function(message)
    except Exception as error:
        raise RuleFailed(f"{type(error).__name__}: {str(error)[:200]}") from None
    if returned is None or isinstance(returned, FunctionMessage):
        found = returned
    elif isinstance(returned, bytes):
        found = msgspec.structs.replace(message, payload=returned)
    else:
        raise RuleFailed(f"the function has returned {type(returned).__name__}; expected a message, bytes or None")
    return None if found is None else _checked(found)


def _checked(message: FunctionMessage) -> FunctionMessage:
    try:
        return msgspec.convert(msgspec.to_builtins(message, builtin_types=(bytes,)), FunctionMessage)
    except (msgspec.ValidationError, TypeError) as wrong:
        raise RuleFailed(f"the function has returned a message with a wrong field: {str(wrong)[:200]}") from None
