"""The streams behind a journal: made as they must be, refused if they would lose something."""

import nats.errors
import nats.js.errors
from nats.js.api import RePublish, StreamConfig, StreamInfo

from omnirelay.model.errors import InvalidOption
from omnirelay.stores.nats_address import NatsAddress
from omnirelay.stores.nats_link import NatsLink
from omnirelay.stores.versions import refuse_later

LAYOUT_VERSION = 1
_VERSION = "omnirelay_layout"
"""In the metadata of the journal's stream, for the others too."""


async def ensure_streams(link: NatsLink) -> StreamInfo:
    """Both streams are there and fit. Returns how the journal's stream is.

    Raises InvalidOption if a stream of that name would lose what is written to it.
    """
    address = link.address
    info = await _ensure(link, journal_config(address, takes_batches=link.knows_batches))
    _check_version(info.config, address)
    _check_journal(info.config, address)
    replicas = info.config.num_replicas or 1
    parts = await _ensure(link, parts_config(address, replicas))
    _check_kept(parts.config, address)
    _check_replicas(parts.config, replicas, address)
    return info


def journal_config(address: NatsAddress, *, takes_batches: bool) -> StreamConfig:
    """No limit, so that nothing is ever dropped: a stream that is full refuses instead."""
    return StreamConfig(
        name=address.stream,
        description="OmniRelay journal: one envelope a message, one subject a shard",
        subjects=[f"{address.stream}.journal.*"],
        storage="file",  # type: ignore[arg-type]
        retention="limits",  # type: ignore[arg-type]
        discard="new",  # type: ignore[arg-type]
        num_replicas=address.replicas or 1,
        allow_direct=True,
        allow_atomic=takes_batches or None,
        metadata={_VERSION: str(LAYOUT_VERSION)},
        # Tells readers that something was stored; a plain subscription hears of it before it is.
        republish=RePublish(
            src=f"{address.stream}.journal.*",
            dest=f"{address.stream}.stored.{{{{wildcard(1)}}}}",
            headers_only=True,
        ),
    )


def parts_config(address: NatsAddress, replicas: int) -> StreamConfig:
    """A part written again replaces the one before: that is the only thing that is ever dropped."""
    return StreamConfig(
        name=address.parts_stream,
        description="OmniRelay: parts of snapshots and of large envelopes",
        subjects=[f"{address.stream}.part.>"],
        storage="file",  # type: ignore[arg-type]
        retention="limits",  # type: ignore[arg-type]
        discard="old",  # type: ignore[arg-type]
        max_msgs_per_subject=1,
        num_replicas=replicas,
        allow_direct=True,
    )


async def check_version(link: NatsLink) -> None:
    """Of a journal that is only read, if there is one."""
    with link.errors():
        try:
            info = await link.manager.stream_info(link.address.stream)
        except nats.js.errors.NotFoundError:
            return
    _check_version(info.config, link.address)


def _check_version(config: StreamConfig, address: NatsAddress) -> None:
    said = (config.metadata or {}).get(_VERSION, "1")
    if not said.isdecimal():
        raise InvalidOption(
            f"{address.shown}: {_VERSION} of the stream {config.name} is {said[:80]!r}, must be a "
            f"number: correct its metadata, or name another stream"
        )
    refuse_later(address.shown, int(said), LAYOUT_VERSION)


async def _ensure(link: NatsLink, wanted: StreamConfig) -> StreamInfo:
    name = str(wanted.name)
    with link.errors():
        try:
            return await link.manager.stream_info(name)
        except nats.js.errors.NotFoundError:
            pass
        try:
            return await link.manager.add_stream(wanted)
        except nats.js.errors.BadRequestError as error:
            if error.err_code == _NAME_TAKEN:  # somebody made it meanwhile; it is checked as found
                return await link.manager.stream_info(name)
            raise InvalidOption(_cannot_make(link.address, name, wanted, error)) from error
        except nats.js.errors.ServiceUnavailableError as error:
            if error.err_code is None:
                raise InvalidOption(
                    f"{link.address.shown}: JetStream is not enabled on this server: start it with "
                    f"`jetstream` in its configuration, or with -js"
                ) from error
            raise
        except nats.js.errors.ServerError as error:
            raise InvalidOption(_cannot_make(link.address, name, wanted, error)) from error


_NAME_TAKEN = 10058


def _cannot_make(
    address: NatsAddress, name: str, wanted: StreamConfig, error: nats.js.errors.APIError
) -> str:
    return (
        f"{address.shown}: the stream {name} with {wanted.num_replicas} replicas cannot be made: "
        f"{error.description}"
    )


def _check_journal(config: StreamConfig, address: NatsAddress) -> None:
    _check_kept(config, address)
    _check_replicas(config, address.replicas, address)
    subject = f"{address.stream}.journal.*"
    if subject not in (config.subjects or []):
        raise InvalidOption(
            f"{address.shown}: the stream {config.name} takes {config.subjects}, not {subject}: "
            f"name another stream, or add the subject"
        )
    dropping = {
        "max_msgs_per_subject": config.max_msgs_per_subject > 0,
        "max_bytes with discard old": (config.max_bytes or 0) > 0 and config.discard != "new",
        "deny_purge": config.deny_purge,
        "subject_transform": config.subject_transform is not None,
        "allow_direct off": not config.allow_direct,
    }
    _refuse(dropping, config, address)


def _check_kept(config: StreamConfig, address: NatsAddress) -> None:
    dropping = {
        "memory storage": config.storage != "file",
        f"retention {config.retention}": config.retention != "limits",
        "max_msgs": (config.max_msgs or 0) > 0,
        "max_age": bool(config.max_age),
        "no_ack": config.no_ack,
        "sealed": config.sealed,
        "a mirror": config.mirror is not None,
    }
    _refuse(dropping, config, address)


def _refuse(found: dict[str, bool], config: StreamConfig, address: NatsAddress) -> None:
    bad = [what for what, is_so in found.items() if is_so]
    if bad:
        raise InvalidOption(
            f"{address.shown}: the stream {config.name} has {', '.join(bad)}, which would lose or "
            f"refuse what a journal must keep: change it with `nats stream edit`, or name another"
        )


def _check_replicas(config: StreamConfig, wanted: int, address: NatsAddress) -> None:
    if (config.num_replicas or 1) < wanted:
        raise InvalidOption(
            f"{address.shown}: the stream {config.name} has {config.num_replicas} replicas, "
            f"{wanted} are asked for: nats stream edit {config.name} --replicas {wanted}"
        )
