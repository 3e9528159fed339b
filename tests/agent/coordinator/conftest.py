"""The services on each store, and a disk whose writes can fail."""

import pytest

from reference_agent.store.registry import STORES
from tests.agent.helpers import Points
from tests.agent.service import Disk, Service


@pytest.fixture(params=STORES.names())
def service(tmp_path, request):
    return Service(tmp_path, request.param)


@pytest.fixture
def disk(monkeypatch):
    return Disk(Points(monkeypatch))
