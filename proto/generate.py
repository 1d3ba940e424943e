"""Writes the Python of proto/ into the package: `python proto/generate.py [folder]`."""

import sys
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped]  # ships no types

SOURCES = Path(__file__).resolve().parent
PACKAGE = SOURCES.parent / "src" / "omnirelay" / "transports" / "proto"


def generate(into: Path) -> None:
    """Messages only. The services are served and called by their descriptors, so that a call's
    bytes pass through the dispatcher before anything reads them."""
    protos = sorted((SOURCES / "omnirelay" / "v1").glob("*.proto"))
    # Stripped of folders in the output, named in full in the descriptors: another program that
    # generates from the same files in the same process must find equal ones.
    staging = into / "omnirelay" / "v1"
    arguments = [f"-I{SOURCES}", f"--python_out={into}", f"--pyi_out={into}", *map(str, protos)]
    if protoc.main(["protoc", f"-I{_well_known()}", *arguments]) != 0:
        sys.exit("protoc refused the files of proto/")
    for made in staging.iterdir():
        _place(made, into / made.name)
    staging.rmdir()
    staging.parent.rmdir()


def _place(made: Path, at: Path) -> None:
    text = made.read_text(encoding="utf-8")
    made.unlink()
    at.write_text(_LOOSE_TYPES + text if at.suffix == ".pyi" else text, encoding="utf-8")


# The generator leaves out what strict typing asks for.
_LOOSE_TYPES = '# mypy: disable-error-code="type-arg, no-untyped-def"\n'


def _well_known() -> Path:
    return Path(protoc.__file__).resolve().parent / "_proto"


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PACKAGE)
