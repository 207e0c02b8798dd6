"""Property tests here have no time limit: a loaded machine must not fail them."""

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
pytest.register_assert_rewrite("tests.diagnosis.verdicts")  # its assertions show both sides too
