"""A message while rules change it.

The payload is decoded when the first rule needs it, and written again when it has changed. A rule that fails leaves the
draft as it was before the rule: actions are applied to a copy.
"""

from dataclasses import dataclass, replace

from overlane.mediation.formats import CONTENT_TYPES, decode, encode, format_of
from overlane.mediation.rule import Format, RuleFailed
from overlane.selectors import UNREADABLE, MessageValues

_NOT_READ: object = object()


@dataclass(slots=True)
class Draft:
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    content_type: str | None = None
    is_text: bool = False
    properties: tuple[tuple[str, str], ...] = ()
    _body: object = _NOT_READ
    _body_format: Format = "json"

    def copy(self) -> "Draft":
        return replace(self)

    def body(self, form: Format | None = None) -> object:
        """The decoded payload, of this format or of that of its content type; RuleFailed."""
        wanted = form or format_of(self.content_type)
        if self._body is _NOT_READ or self._body_format != wanted:
            self._body, self._body_format = decode(self.payload, wanted), wanted
        return self._body

    def write(self, body: object, form: Format) -> None:
        """A new payload, and its content type if the format is another one; RuleFailed."""
        self.payload = encode(body, form)
        self._body, self._body_format = body, form
        if form != format_of(self.content_type):
            self.content_type = CONTENT_TYPES[form]
        self.is_text = form == "json" and self.is_text

    def values(self, form: Format | None = None) -> MessageValues:
        """What selectors and expressions may ask for."""

        def read(_: bytes) -> object:
            try:
                return self.body(form) if self.payload else UNREADABLE
            except RuleFailed:
                return UNREADABLE

        return MessageValues(self.topic, self.payload, self.properties, self.content_type, self.qos, self.retain, read)
