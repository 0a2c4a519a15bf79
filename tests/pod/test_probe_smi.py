"""Parsing nvidia-smi's XML: recordings of several drivers, and damaged texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.pod.stages import smi

H200 = (Path(__file__).parent / "data" / "h200-q-x.xml").read_bytes()


def test_a_recorded_h200_is_read() -> None:
    """Every specified key has the recording's value; a missing value is null, not zero."""
    smi_facts, error = smi.read(H200)
    assert error == ""
    assert (smi_facts["driver"], smi_facts["cuda"], smi_facts["attached"]) == ("580.159.04", "13.0", 1)
    (gpu,) = smi_facts["gpus"]
    assert gpu["name"] == "NVIDIA H200"
    assert gpu["memory_mib"] == 143771
    assert gpu["gsp"] == "580.159.04"
    assert gpu["bus_id"] == "00000000:00:06.0"
    assert (gpu["ecc_uncorrected_volatile"], gpu["ecc_uncorrected_aggregate"]) == (0, 0)
    assert (gpu["retired_pending"], gpu["remap_pending"], gpu["remap_failure"]) == (None, False, False)
    assert (gpu["mig"], gpu["mig_devices"], gpu["persistence"]) == ("Disabled", 0, True)
    assert (gpu["throttle"], gpu["clock_limits"]) == ([], [])
    assert (gpu["fabric_state"], gpu["fabric_status"], gpu["fabric_health"]) == ("N/A", "N/A", None)
    assert (gpu["temperature_c"], gpu["pcie"], gpu["nvlinks_active"]) == (35, "gen5 16x", None)


@pytest.mark.parametrize(
    ("name", "driver", "count", "model"),
    [
        ("qx-a100.xml", "570.148.08", 1, "NVIDIA A100-SXM4-40GB"),
        ("qx-h100.xml", "580.105.08", 8, "NVIDIA H100 80GB HBM3"),
        ("qx-gb200.xml", "580.173.02", 4, "NVIDIA GB200"),
        ("qx-gb200-healthy.xml", "580.65.06", 2, "NVIDIA GB200"),
    ],
    ids=["a100", "h100", "gb200", "gb200-healthy"],
)
def test_recordings_of_other_machines_are_healthy(shared: Path, name: str, driver: str, count: int, model: str) -> None:
    """Recorded machines of two DTD versions have all GPUs, no error, and no fault."""
    smi_facts, error = smi.read((shared / "nvidia-smi" / name).read_bytes())
    assert (error, smi_facts["driver"], len(smi_facts["gpus"])) == ("", driver, count)
    for gpu in smi_facts["gpus"]:
        assert gpu["name"] == model
        assert gpu["memory_mib"] > 40000
        assert not any((gpu["ecc_uncorrected_volatile"], gpu["remap_failure"], gpu["remap_pending"], gpu["throttle"]))


def test_injected_memory_errors_are_seen(shared: Path) -> None:
    """Uncorrected ECC errors and a failed row remap are on the first GPU only."""
    smi_facts, _ = smi.read((shared / "nvidia-smi" / "qx-gb200-ecc-injected.xml").read_bytes())
    first, second = smi_facts["gpus"]
    assert (first["ecc_uncorrected_volatile"], first["ecc_uncorrected_aggregate"], first["remap_failure"]) == (
        5,
        8,
        True,
    )
    assert (second["ecc_uncorrected_volatile"], second["remap_failure"]) == (0, False)


def test_a_degraded_fabric_is_seen(shared: Path) -> None:
    """The fabric can be complete and successful but unhealthy, as its health field shows."""
    smi_facts, _ = smi.read((shared / "nvidia-smi" / "qx-gb200-fabric-degraded.xml").read_bytes())
    first, second = smi_facts["gpus"]
    assert first["fabric_health"]["summary"] == "Healthy"
    assert second["fabric_health"]["summary"] == "Unhealthy"
    assert second["fabric_health"]["route_unhealthy"] == "True"
    assert (second["fabric_state"], second["fabric_status"]) == ("Completed", "Success")


def test_names_of_an_older_driver_are_understood() -> None:
    """Driver 470 (DTD 11) has throttle reasons, double bit errors, pending_blacklist, and MIG devices."""
    text = b"""<?xml version="1.0" ?>
    <!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v11.dtd">
    <nvidia_smi_log><driver_version>470.57.02</driver_version><cuda_version>11.4</cuda_version>
    <gpu id="00000000:3B:00.0"><product_name>Tesla V100-SXM2-32GB</product_name><uuid>GPU-1</uuid>
      <persistence_mode>Disabled</persistence_mode>
      <mig_mode><current_mig>Enabled</current_mig></mig_mode>
      <mig_devices><mig_device><index>0</index></mig_device><mig_device><index>1</index></mig_device></mig_devices>
      <clocks_throttle_reasons>
        <clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle>
        <clocks_throttle_reason_hw_slowdown>Active</clocks_throttle_reason_hw_slowdown>
        <clocks_throttle_reason_sw_power_cap>Active</clocks_throttle_reason_sw_power_cap>
        <clocks_throttle_reason_hw_thermal_slowdown>Not Active</clocks_throttle_reason_hw_thermal_slowdown>
      </clocks_throttle_reasons>
      <ecc_errors><volatile><single_bit><total>9</total></single_bit><double_bit><total>2</total></double_bit></volatile>
        <aggregate><double_bit><total>N/A</total></double_bit></aggregate></ecc_errors>
      <retired_pages><pending_blacklist>Yes</pending_blacklist></retired_pages>
      <remapped_rows>N/A</remapped_rows>
    </gpu></nvidia_smi_log>"""
    smi_facts, error = smi.read(text)
    assert error == ""
    (gpu,) = smi_facts["gpus"]
    assert (gpu["throttle"], gpu["clock_limits"]) == (["hw_slowdown"], ["sw_power_cap"])
    assert (gpu["ecc_uncorrected_volatile"], gpu["ecc_uncorrected_aggregate"]) == (2, None)
    assert (gpu["retired_pending"], gpu["remap_pending"]) == (True, None)
    assert (gpu["mig"], gpu["mig_devices"], gpu["persistence"]) == ("Enabled", 2, False)
    assert gpu["fabric_state"] is None


def test_nothing_but_a_gpu_element_is_still_a_gpu() -> None:
    """Missing fields are null, never an exception."""
    smi_facts, error = smi.read(b"<nvidia_smi_log><gpu/></nvidia_smi_log>")
    assert error == ""
    (gpu,) = smi_facts["gpus"]
    assert {key for key, value in gpu.items() if value} == set()


@pytest.mark.parametrize(
    "text",
    [
        b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
        b"No devices were found",
        b"Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost. Reboot the system to recover this GPU",
    ],
    ids=["no-driver", "no-devices", "gpu-lost"],
)
def test_a_sentence_instead_of_xml_is_the_error(text: bytes) -> None:
    """nvidia-smi's text in place of XML is kept as the error."""
    smi_facts, error = smi.read(text)
    assert smi_facts["gpus"] == []
    assert text.decode() in error


def test_warnings_around_the_document_do_not_spoil_it() -> None:
    """nvidia-smi prints its infoROM warning after the XML: the document is read and the warning kept."""
    warning = b"WARNING: infoROM is corrupted at gpu 0000:3B:00.0"
    smi_facts, error = smi.read(b"\xef\xbb\xbf" + H200 + warning + b"\n")
    assert len(smi_facts["gpus"]) == 1
    assert warning.decode() in error


def test_a_cut_document_keeps_its_whole_gpus() -> None:
    """If nvidia-smi crashes during its output, the complete GPUs are reported, with the error."""
    second = H200[H200.index(b"<gpu ") : H200.rindex(b"</nvidia_smi_log>")]
    both = H200.replace(b"</nvidia_smi_log>", second)
    smi_facts, error = smi.read(both[: len(both) - 400])
    assert len(smi_facts["gpus"]) == 1
    assert "XML" in error


@pytest.mark.parametrize("cut", range(0, len(H200), 487))
def test_no_cut_is_a_crash(cut: int) -> None:
    """A document truncated anywhere yields an answer."""
    smi_facts, _ = smi.read(H200[:cut])
    assert len(smi_facts["gpus"]) in (0, 1)


def test_entities_are_refused() -> None:
    """A document that defines entities is not parsed at all."""
    bomb = b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><nvidia_smi_log>&b;</nvidia_smi_log>'
    smi_facts, error = smi.read(bomb)
    assert smi_facts["gpus"] == []
    assert "refused" in error


def test_nvlinks_are_counted_per_gpu() -> None:
    """`nvlink -s` counts links with a rate; inactive ones do not count; a GPU without links is not listed."""
    text = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aa)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bb)\n\t Link 0: <inactive>\n\t Link 1: 26.562 GB/s\n"
    )
    assert smi.links(text) == {"GPU-aa": 2, "GPU-bb": 1}
    assert smi.links("") == {}
