"""Lets a failing case of the shipped suites show its values, as those of this folder do."""

import pytest

pytest.register_assert_rewrite("omnirelay.testing")
