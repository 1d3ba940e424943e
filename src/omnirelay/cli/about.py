"""`omnirelay version`."""

import platform

import apsw

import omnirelay
from omnirelay.cli.ending import JsonFlag, print_json


def version(*, json: JsonFlag = False) -> None:
    """Print the version of OmniRelay and of what it runs on."""
    found = {
        "version": omnirelay.__version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
    }
    if json:
        print_json(found)
    else:
        print(f"omnirelay {found['version']} (Python {found['python']}, SQLite {found['sqlite']})")
