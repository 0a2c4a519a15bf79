"""Packed logs beside plain ones: what was not read is said, and nothing is called healthy."""

import pytest

from cli import explain
from tests.nccl.test_nccl_cut_lines import HEALTHY


@pytest.mark.parametrize(
    ("name", "code"), [("rank1.log.zst", 10), ("job.out.1.xz", 10), ("model.tar", 0), ("data.zip", 0), ("a.pt", 0)]
)
def test_a_packed_log_beside_a_plain_one_is_no_go(tmp_path, capsys, name, code):
    (tmp_path / "rank0.log").write_text(HEALTHY)
    (tmp_path / name).write_bytes(bytes(range(256)))
    assert explain.main([str(tmp_path)]) == code
    assert (name in capsys.readouterr().out) == (code == 10)
