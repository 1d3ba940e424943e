"""What the addresses of all server products share: showing them, and taking them apart."""

import re
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from omnirelay.model.errors import InvalidOption

_SECRET = re.compile(r"(?i)([?&][a-z_]*(?:password|secret|token)[a-z_]*=)[^&#]*")


def masked(url: str) -> str:
    """As it may stand in a log or an error: without its password."""
    before, parted, rest = url.partition("://")
    if not parted:
        return url
    user, at, _ = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")
    if not at and re.match(r"[^/?#]*:[^@]*@", rest):
        # A password with a slash in it, not quoted as it should be, reaches to the last @.
        user, at, _ = rest.rpartition("@")
    if at and ":" in user:
        rest = f"{user.partition(':')[0]}:***@{rest[len(user) + 1 :]}"
    return _SECRET.sub(r"\1***", f"{before}://{rest}")


def take_option(url: str, name: str) -> tuple[str, str | None]:
    """The address without the option `name`, and its value. Raises InvalidOption if it is there
    more than once."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise InvalidOption(f"{masked(url)!r} is no address: check its brackets") from None
    found = [value for key, value in parse_qsl(parts.query, True) if key == name]
    if len(found) > 1:
        raise InvalidOption(f"{masked(url)!r} says {name} more than once")
    kept = [one for one in parts.query.split("&") if one and one.partition("=")[0] != name]
    rest = urlunsplit(parts._replace(query="&".join(kept)))
    return rest, found[0] if found else None
