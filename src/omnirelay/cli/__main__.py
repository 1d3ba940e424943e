"""`python -m omnirelay.cli`, for whoever has the interpreter but not the command at hand."""

from omnirelay.cli.app import main

main()
