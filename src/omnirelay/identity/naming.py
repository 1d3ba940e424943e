"""What a principal may be called, and how settings name one or many of them."""

from collections.abc import Iterable

from omnirelay.model import limits
from omnirelay.model.errors import InvalidOption, Unauthenticated
from omnirelay.model.items import ANONYMOUS


def principal_named(text: object, source: str) -> str:
    """Raises Unauthenticated for what cannot be a principal. The text itself is not repeated: it
    may be hostile, or a secret in the wrong place."""
    if not isinstance(text, str) or not text or text != text.strip():
        raise Unauthenticated(f"{source} names no principal")
    if len(text) > limits.NAME_CHARS_MAX or not text.isprintable():
        raise Unauthenticated(
            f"{source} names a principal that is not printable text of at most "
            f"{limits.NAME_CHARS_MAX} characters"
        )
    if text == ANONYMOUS:
        raise Unauthenticated(f"{source} names {ANONYMOUS!r}, which nobody can be proved to be")
    return text


class Pattern:
    """A text, or the beginning of one followed by `*`."""

    __slots__ = ("_is_prefix", "_text")

    def __init__(self, written: str, what: str) -> None:
        """Raises InvalidOption if `written` cannot be a pattern."""
        self._is_prefix = written.endswith("*")
        self._text = written.removesuffix("*")
        if not written.strip() or "*" in self._text:
            raise InvalidOption(
                f"{what}: {written!r} must be a name, or the beginning of one with a single `*` "
                f"at its end"
            )

    def matches(self, text: str) -> bool:
        if self._is_prefix:
            return text.startswith(self._text)
        return text == self._text

    def matches_principal(self, principal: str) -> bool:
        """`*` means everybody who was proved. Who was not is only meant by name."""
        if principal == ANONYMOUS:
            return not self._is_prefix and self._text == ANONYMOUS
        return self.matches(principal)


def patterns(written: Iterable[str], what: str) -> tuple[Pattern, ...]:
    return tuple(Pattern(one, what) for one in written)
