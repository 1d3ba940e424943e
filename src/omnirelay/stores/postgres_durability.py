"""What a PostgreSQL server states about its commits, read from itself."""

from omnirelay.journal.backend import Durability
from omnirelay.stores.postgres_link import PostgresLink

_ASKED = ("fsync", "full_page_writes", "synchronous_commit", "synchronous_standby_names")
_SETTINGS = f"""SELECT current_setting('server_version'),
{", ".join(f"current_setting('{name}')" for name in _ASKED)}"""
_WAITS_FOR_STANDBY = ("remote_write", "on", "remote_apply")


async def durability(link: PostgresLink) -> Durability:
    """On this connection: a role or a database may have settings of its own."""
    version, *values = (await link.rows(_SETTINGS))[0]
    told = dict(zip(_ASKED, map(str, values), strict=True))
    # Without waiting, the server answers before its log has left its memory.
    waits = told["synchronous_commit"] != "off"
    # A page torn by a power cut is mended from its full image in the log, or not at all.
    syncs = told["fsync"] == "on" and told["full_page_writes"] == "on"
    standby = bool(told["synchronous_standby_names"].strip())
    is_copied = standby and told["synchronous_commit"] in _WAITS_FOR_STANDBY
    said = ", ".join(f"{name}={value or 'none'}" for name, value in told.items())
    after = "; fail over only to a synchronous standby" if is_copied else ""
    return Durability(
        waits, waits and syncs, waits and is_copied, f"PostgreSQL {version}: {said}{after}"
    )
