"""The services behind the HTTP API, in a directory of their own."""

import pytest

from tests.agent.service import Service


@pytest.fixture
def service(tmp_path):
    return Service(tmp_path / "state")


@pytest.fixture(autouse=True)
def state(tmp_path):
    path = tmp_path / "state"
    path.mkdir()
    return path
