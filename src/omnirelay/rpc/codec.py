"""From bytes to structs and back. One codec an encoding; a transport may bring its own."""

from typing import Any, Protocol, TypeVar

import msgspec

from omnirelay.model.errors import InvalidArgument

T = TypeVar("T")


class Codec(Protocol):
    name: str
    """As in the header `Rpc-Encoding`."""

    def encode(self, message: Any) -> bytes:
        """Any: whatever struct a procedure declared."""

    def decode(self, body: bytes, kind: type[T]) -> T:
        """Raises InvalidArgument, naming the field, for a body that is not one of `kind`."""


class JsonCodec:
    name = "json"

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._decoders: dict[type, msgspec.json.Decoder[Any]] = {}

    def encode(self, message: Any) -> bytes:
        return self._encoder.encode(message)

    def decode(self, body: bytes, kind: type[T]) -> T:
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.json.Decoder(kind)
        try:
            # A call without arguments may come without a body.
            message: T = decoder.decode(body or b"{}")
            return message
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArgument(f"malformed body: {error}") from None


class MsgpackCodec:
    name = "msgpack"

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {}

    def encode(self, message: Any) -> bytes:
        return self._encoder.encode(message)

    def decode(self, body: bytes, kind: type[T]) -> T:
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = msgspec.msgpack.Decoder(kind)
        try:
            message: T = decoder.decode(body or b"\x80")
            return message
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidArgument(f"malformed body: {error}") from None


JSON = JsonCodec()
MSGPACK = MsgpackCodec()
CODECS: dict[str, Codec] = {codec.name: codec for codec in (JSON, MSGPACK)}
