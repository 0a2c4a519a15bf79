"""nvidia-smi and the RDMA tools as a pod sees them."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lab.hardware import files as hardware


def test_xml_has_every_gpu_and_no_gap(pair):
    """-q -x prints one element per allocated GPU, in the form of a recording with driver 580."""
    answer = pair.ask("nvidia-smi", "-q", "-x")
    tree = ElementTree.fromstring(answer.stdout)
    assert answer.returncode == 0
    assert "@" not in answer.stdout
    assert tree.findtext("attached_gpus") == "8"
    assert [gpu.findtext("fabric/state") for gpu in tree.iter("gpu")] == ["Completed"] * 8
    assert {gpu.findtext("ecc_errors/volatile/dram_uncorrectable") for gpu in tree.iter("gpu")} == {"0"}
    assert len({gpu.findtext("uuid") for gpu in tree.iter("gpu")}) == 8


def test_xml_has_the_elements_of_a_recording(pair, shared):
    """No element of a recorded document is missing, and none was invented."""
    recorded = ElementTree.parse(shared / "nvidia-smi" / "h200-q-x.xml").getroot().find("gpu")
    played = ElementTree.fromstring(pair.ask("nvidia-smi", "-q", "-x").stdout).find("gpu")

    def paths(element, prefix=""):
        return {prefix + child.tag for child in element} | {
            path for child in element for path in paths(child, f"{prefix}{child.tag}/")
        }

    assert paths(played) == paths(recorded)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ("index,name,memory.total", "0, NVIDIA H100 80GB HBM3, 81559 MiB"),
        ("ecc.errors.uncorrected.volatile.total,mig.mode.current", "0, Disabled"),
        ("clocks_throttle_reasons.active,persistence_mode", "0x0000000000000001, Enabled"),
    ],
)
def test_queries_answer_as_csv(pair, fields, line):
    """--query-gpu prints units, as recorded."""
    answer = pair.ask("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")
    assert answer.stdout.splitlines()[0] == line


def test_an_unknown_field_is_refused(pair):
    """The tool prints the real text and exits with code 2."""
    answer = pair.ask("nvidia-smi", "--query-gpu=colour", "--format=csv")
    assert (answer.returncode, answer.stdout.splitlines()[0]) == (2, 'Field "colour" is not a valid field to query.')


def test_only_allocated_gpus_are_shown(pair):
    """A pod with two GPUs sees two."""
    pair.gpus = 2
    assert len(pair.ask("nvidia-smi", "-L").stdout.splitlines()) == 2
    pair.gpus = 0
    answer = pair.ask("nvidia-smi")
    assert (answer.returncode, answer.stdout.strip()) == (6, "No devices were found")


def test_links_and_topology_show_the_board(pair):
    """18 NVLinks per GPU; each GPU next to its own card."""
    assert pair.ask("nvidia-smi", "nvlink", "-s").stdout.count("26.562 GB/s") == 8 * 18
    rows = pair.ask("nvidia-smi", "topo", "-m").stdout.splitlines()
    assert rows[3].split()[:4] == ["GPU2", "NV18", "NV18", "X"]
    assert rows[3].count("PIX") == 1
    assert "  NIC7: mlx5_7" in rows


def test_the_table_is_as_wide_as_the_recorded_one(pair, shared):
    """The plain table keeps its columns."""
    recorded = (shared / "nvidia-smi" / "h200-table.txt").read_text().splitlines()
    played = pair.ask("nvidia-smi").stdout.splitlines()
    assert {len(line) for line in played[1:] if line} == {len(line) for line in recorded[1:] if line}


def test_rdma_tools_need_the_devices(pair):
    """With the resource eight ports are ACTIVE; without it the tools print the real messages."""
    assert pair.ask("ibv_devinfo").stdout.count("PORT_ACTIVE (4)") == 8
    assert "Rate: 400" in pair.ask("ibstat", "mlx5_3").stdout
    pair.rdma = [False, False]
    answer = pair.ask("ibv_devinfo")
    assert (answer.returncode, answer.stderr.strip()) == (255, "No IB devices found")


@pytest.mark.parametrize("folder", ["one", "with a blank", 'it\'s "quoted" $HOME', "long" * 40])
def test_a_stand_in_starts_wherever_this_python_lies(tmp_path, folder):
    """A script's first line ends at a space, and earlier on older kernels."""
    python = tmp_path / folder / "python3"
    python.parent.mkdir()
    shutil.copy(Path(sys.executable).resolve(), python)
    library = {"LD_LIBRARY_PATH": f"{sys.base_prefix}/lib", "PYTHONHOME": sys.base_prefix}
    program = tmp_path / "ibstat"
    program.write_text(hardware.script(python, " -S", "ibv_devinfo", "ibstat_main"))
    program.chmod(0o755)
    state = tmp_path / "node.json"
    state.write_text(json.dumps({"rdma": {"devices": []}}))
    env = {"PATH": "/usr/bin:/bin", "SIM_NODE_JSON": str(state), **library}
    done = subprocess.run([program, "-l"], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:11]) == (255, "ibpanic: [1"), done
