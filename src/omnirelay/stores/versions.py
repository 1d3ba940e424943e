"""How a store lays out its journals has a version, which it keeps beside them: written when one is
opened for the first time, asked for by whoever opens or reads it. A journal that names none is of
version 1: some stores named it only later."""

from omnirelay.model.errors import InvalidOption


def refuse_later(shown: str, found: int, known: int) -> None:
    """Raises InvalidOption. Asked before anything is written: who does not know a layout would
    damage it, and take what it cannot find for an empty journal."""
    if found > known:
        raise InvalidOption(
            f"{shown} has layout version {found}, this program knows {known}: a later OmniRelay "
            f"wrote it, upgrade this one"
        )
