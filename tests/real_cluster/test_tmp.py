import pytest, shutil, subprocess
@pytest.mark.parametrize("again", range(8))
def test_sweeps(bench, again):
    outcome = bench.run("sweep")
    if outcome.verdict != "go":
        shutil.copytree(bench.cluster.folder/"logs", bench.folder/"clusterlogs")
    assert outcome.verdict == "go", outcome.text
