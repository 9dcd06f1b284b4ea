"""The process in which functions of the user run: `python -m overlane.node.mediation.worker`.

    in     length u32 | (number, function, seconds, message)     message None: import the function only
    out    length u32 | (number, message, failure)

Frames of MessagePack on standard input and output; what functions print goes to standard error. The broker ends the
process when a function takes too long; should the broker be gone by then, an alarm does.
"""

import os
import signal
import sys
from typing import BinaryIO

import msgspec

from overlane.mediation.functions import Function, FunctionMessage, apply, find_function
from overlane.mediation.rule import RuleFailed

Call = tuple[int, str, float, FunctionMessage | None]
Answer = tuple[int, FunctionMessage | None, str]

_decode = msgspec.msgpack.Decoder(Call).decode
_encode = msgspec.msgpack.Encoder().encode


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    functions: dict[str, Function] = {}
    while len(head := source.read(4)) == 4:
        number, name, within_s, message = _decode(source.read(int.from_bytes(head)))
        signal.setitimer(signal.ITIMER_REAL, within_s + 1)
        written = _encode(_answer(functions, number, name, message))
        signal.setitimer(signal.ITIMER_REAL, 0)
        sink.write(len(written).to_bytes(4) + written)
        sink.flush()


def _answer(functions: dict[str, Function], number: int, name: str, message: FunctionMessage | None) -> Answer:
    try:
        function = functions.get(name)
        if function is None:
            function = functions[name] = find_function(name)
        return number, None if message is None else apply(function, message), ""
    except RuleFailed as failed:
        return number, None, str(failed)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the broker ends first, and then this
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, sink)


if __name__ == "__main__":
    main()
