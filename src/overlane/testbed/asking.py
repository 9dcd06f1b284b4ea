"""One request to the admin API of a broker of a trial."""

import http.client
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from overlane.errors import Unavailable
from overlane.network.schema import Endpoint

ANSWER_S = 10.0


def ask(
    broker: str,
    admin: Endpoint,
    method: str,
    path: str,
    where: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> bytes:
    """`where` is entered while the connection is made."""
    connection = http.client.HTTPConnection(admin.host, admin.port, timeout=ANSWER_S)
    try:
        with where():
            connection.connect()
        connection.request(method, path)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"broker {broker}", f"its admin API does not answer: {error}") from None
    finally:
        connection.close()
    if answer.status >= 300:
        raise Unavailable(f"broker {broker}", f"its admin API answers {method} {path} with status {answer.status}")
    return body
