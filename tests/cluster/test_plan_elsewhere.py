"""A bucket that has none of the shards of a plan is another one: nothing is stored or recorded there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from bucket_server import Stores, set_credentials, two_stores
from servers import Server, ok
from slice_parts import ShardPlan

from downloader.cluster.driver.job import run_cluster
from downloader.cluster.driver.stored_there import check_bucket
from downloader.cluster.driver.verify import verify_cluster
from downloader.cluster.plan import configs
from downloader.core.bucket_access import BucketAccess
from downloader.errors import DestinationError

obstore = pytest.importorskip("obstore")

REGION = "us-east-1"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with two_stores(tmp_path_factory.mktemp("stores")) as stores:
        yield stores


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_credentials(monkeypatch)


def state(directory: Path) -> dict[str, bytes]:
    """Return the files of the plan in ``directory``."""
    plan = directory / ".downloader" / "plan"
    return {str(path): path.read_bytes() for path in plan.rglob("*") if path.is_file()}


@pytest.mark.parametrize("store", ["tar", "parquet"])
def test_plan_at_another_store(stores: Stores, tmp_path: Path, store: str) -> None:
    """``verify`` and a driver refuse; in a staging shards are there, too."""
    root = f"s3://shards/plan-{store}"
    access = [BucketAccess(server.url, REGION) for server in stores]
    ours, other = access
    with Server(default=lambda request: ok(request.target.encode())) as source:
        where = {"endpoint_url": ours.endpoint_url, "region": REGION, "store": store}
        plan = ShardPlan(tmp_path / "d", source.url, 2, where, root)
        check_bucket(plan.directory, root, other)  # nothing is stored yet
        name = plan.add(["a", "b", "c", "d", "e"], ended=True)
        plan.attempt(name, tmp_path / "s")
        assert plan.drive() == 0
        before = state(plan.dest)
        text = f"{root} at {other.endpoint_url} has none of the 3 shards that this job has stored"
        with pytest.raises(DestinationError, match=text):
            verify_cluster(root, True, str(plan.dest), other)
        elsewhere = {**plan.config.store_options, "endpoint_url": other.endpoint_url}
        with pytest.raises(DestinationError, match=text):
            run_cluster(configs.changed(plan.config, engine="ray", store_options=elsewhere))
        assert state(plan.dest) == before
        assert stores.other.objects(f"plan-{store}") == {}
        found = verify_cluster(root, True, str(plan.dest), ours)
        assert found is not None
        assert (found.checked, found.agree, found.exit_code) == (5, 5, 0)
        # As if the driver was killed before it gave any shard its name.
        objects, staging = stores.ours.store(f"plan-{store}"), plan.done(name).staging
        for leaf in stores.ours.objects(f"plan-{store}"):
            obstore.rename(objects, leaf, f".downloader/attempts/{staging}/{leaf}")
        check_bucket(plan.directory, root, ours)
