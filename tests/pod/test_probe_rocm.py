"""AMD's tools in the format of NVIDIA's, and other GPU facts of a pod."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.pod.stages import gpus, rocm, smi
from jobs.pod.stages.deadline import Watch

CARD = {
    "Unique ID": "0x83b4f7b1c1d0a3e2",
    "Card Series": "AMD Instinct MI300X",
    "Card Model": "0x74a1",
    "VRAM Total Memory (B)": "206141652992",
    "PCI Bus": "0000:05:00.0",
    "VBIOS version": "113-M3000100-102",
    "Temperature (Sensor junction) (C)": "41.0",
}


def answer(**changes) -> bytes:
    document = {f"card{i}": dict(CARD, **{"Unique ID": f"0x{i}"}) for i in (0, 10, 2)}
    document["card2"].update(changes)
    return b"WARNING: low power\n" + json.dumps(dict(document, system={"Driver version": "6.12.12"})).encode() + b"\n"


def test_rocm_smi_is_read_in_the_shape_of_nvidia_smi() -> None:
    """Cards are in numerical order with the keys of an NVIDIA GPU, and the driver is from the system's entry."""
    smi_facts, error = rocm.read(answer())
    assert error == ""
    assert smi_facts["driver"] == "6.12.12"
    assert [gpu["index"] for gpu in smi_facts["gpus"]] == [0, 2, 10]
    first = smi_facts["gpus"][0]
    assert (first["uuid"], first["name"], first["memory_mib"]) == ("0x0", "AMD Instinct MI300X", 196592)
    assert first["temperature_c"] == 41
    text = (Path(__file__).parent / "data" / "h200-q-x.xml").read_bytes()
    assert set(first) == set(smi.read(text)[0]["gpus"][0])


def test_older_names_and_pending_pages_are_read() -> None:
    """Field names of older releases; a page that waits for retirement is counted, an empty list is not."""
    smi_facts, _ = rocm.read(answer(**{"Card Series": "N/A", "Card series": "MI300X", "Pending page": "0x1f3a"}))
    assert (smi_facts["gpus"][1]["name"], smi_facts["gpus"][1]["retired_pending"]) == ("MI300X", True)
    smi_facts, _ = rocm.read(answer(**{"Pending page": "None"}))
    assert [gpu["retired_pending"] for gpu in smi_facts["gpus"]] == [None, False, None]


def test_uncorrectable_errors_are_read_where_the_driver_counts_them(tmp_path: Path) -> None:
    """The sum over all blocks, by PCI address; corrected errors do not count, and a GPU without counters has null."""
    ras = tmp_path / "sys/bus/pci/devices/0000:05:00.0/ras"
    ras.mkdir(parents=True)
    (ras / "umc_err_count").write_text("ue: 2\nce: 14\n")
    (ras / "gfx_err_count").write_text("ue: 1\nce: 0\n")
    (ras / "features").write_text("feature mask: 0x7\n")
    there, gone = smi.blank(0), smi.blank(1)
    there["bus_id"], gone["bus_id"] = "0000:05:00.0", "0000:06:00.0"
    gpus_ = [there, gone, smi.blank(2)]
    rocm.add_errors(gpus_, str(tmp_path))
    assert [gpu["ecc_uncorrected_volatile"] for gpu in gpus_] == [3, None, None]
    (ras / "gfx_err_count").write_text("not supported\n")
    rocm.add_errors(gpus_, str(tmp_path))
    assert there["ecc_uncorrected_volatile"] == 2


@pytest.mark.parametrize("text", [b"", b"ERROR: no driver", b"{broken", b"[1]", b'{"card0": 3}', b"\xff{}"])
def test_what_is_no_answer_is_an_error_or_no_gpu(text: bytes) -> None:
    """Invalid output yields neither a traceback nor a non-existent GPU."""
    smi_facts, error = rocm.read(text)
    assert smi_facts["gpus"] == []
    assert error or text in (b'{"card0": 3}', b"\xff{}")


@pytest.mark.parametrize(
    ("value", "known"),
    [
        ("GPU-1a2b,GPU-3c", ["GPU-1a2b", "GPU-3c"]),
        ("all", None),
        ("void", None),
        ("", None),
        ("0,1", None),
        ("GPU-1a2b,all", None),
        ("MIG-7/1/0", ["MIG-7/1/0"]),
        ("/var/run/nvidia-container-devices", None),
    ],
)
def test_the_assigned_gpus_are_those_the_plugin_names(value: str, known: list[str] | None) -> None:
    """A device plugin sets a list of ids; any other value does not give the assignment."""
    assert gpus.assigned({"NVIDIA_VISIBLE_DEVICES": value}) == known


def test_an_amd_pod_asks_rocm_smi(tmp_path: Path) -> None:
    """kind amd: rocm-smi is run, its cards are counted, and more than requested are extra."""
    tool = tmp_path / "rocm-smi"
    tool.write_text("#!/bin/sh\ncat <<'E'\n" + answer().decode() + "E\n")
    tool.chmod(0o755)
    data = {}
    gpus.read(
        data, requested=2, kind="amd", env={"PATH": f"{tmp_path}:/bin:/usr/bin"}, watch=Watch(20, 1), root=str(tmp_path)
    )
    assert (data["nvidia_smi"]["name"], data["nvidia_smi"]["exit"], data["driver"]) == ("rocm-smi", 0, "6.12.12")
    assert (len(data["gpus"]), data["extra_gpus"], data["xid"]) == (3, 1, None)


def test_xids_are_counted_where_the_kernel_log_can_be_read(tmp_path: Path) -> None:
    """A pod with access to /dev/kmsg reports the driver's errors; one without it reports null, not zero."""
    assert gpus.xids(str(tmp_path / "kmsg")) is None
    log = tmp_path / "kmsg"
    log.write_text(
        "4,1,2,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.\n" * 2 + "6,2,3,-;usb 1-1\n"
    )
    assert gpus.xids(str(log)) == [{"bus_id": "0000:1b:00", "xid": 79, "count": 2}]
