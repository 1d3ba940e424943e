"""What `import omnirelay` offers is a promise: it changes only together with surface.txt."""

from pathlib import Path

import omnirelay

SURFACE = Path(__file__).with_name("surface.txt")


def test_exported_names_are_those_of_the_checked_in_list() -> None:
    promised = SURFACE.read_text().splitlines()
    assert promised == sorted(set(promised)), "surface.txt is sorted, one name a line"
    assert sorted(omnirelay.__all__) == promised


def test_every_exported_name_exists() -> None:
    missing = [name for name in omnirelay.__all__ if not hasattr(omnirelay, name)]
    assert not missing
