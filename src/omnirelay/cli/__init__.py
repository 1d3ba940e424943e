"""The street door: the command `omnirelay`. Never: decide anything a room below could decide."""

from omnirelay.cli.app import main

__all__ = ["main"]
