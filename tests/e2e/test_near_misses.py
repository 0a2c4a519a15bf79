"""Every cluster fault has a near miss: a similar world in which it must not be reported.

Near misses of an NCCL log's faults are next to their lines (tests/logs/test_nccl_symptoms.py). A name in the table is a
scenario that must not find the fault, which its rehearsal proves; `test_...` is a test of a rule.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial.faults.advice import FAULTS
from seatrial.faults.catalogue import fault_catalogue

ROOT = Path(__file__).resolve().parents[2]
TESTS = [path for room in ("checks", "jobs", "e2e") for path in ROOT.glob(f"tests/{room}/test_*.py")]
NEAR_MISSES = {
    # a user's own job: its manifest, its program, its unmet conditions
    "dns.service-missing": "test_a_crash_is_not_put_down_to_a_service_that_is_missing",
    "job.canceled": "test_a_drained_node_is_reported_and_no_one_is_at_fault",
    "queue.unnamed": "test_a_job_of_a_queue_without_a_workload_is_reported_at_once",
    "manifest.nccl-env": "test_what_job_run_makes_of_a_profile_lacks_nothing",
    "manifest.no-ipc-lock": "test_ipc_lock_is_a_finding_only_where_the_profile_asks_for_it",
    "manifest.no-network": "test_what_job_run_makes_of_a_profile_lacks_nothing",
    "manifest.no-queue": "test_what_job_run_makes_of_a_profile_lacks_nothing",
    "manifest.no-rdma": "test_a_job_on_cpus_is_not_at_fault",
    "manifest.no-shm": "test_what_job_run_makes_of_a_profile_lacks_nothing",
    "manifest.rendezvous": "test_a_service_of_rank_0_alone_is_a_rendezvous",
    "manifest.service": "test_a_service_that_is_not_in_the_file_may_be_in_the_cluster",
    "nccl.nothing-shown": "test_a_program_that_shows_the_fabric_is_go_and_no_acceptance",
    "nccl.own-program": "test_a_program_that_shows_nothing_is_never_green",
    # layers 1 to 3
    "api.unreachable": "healthy-slow-api",
    "api.unauthorized": "rbac-denied",
    "api.version-too-old": "healthy-kubernetes-1-28",
    "api.clock-skew": "test_a_skewed_clock_is_never_held_against_the_cluster",
    "api.slow": "healthy-slow-api",
    "namespace.missing": "test_the_namespace_is_seen_or_tried",
    "namespace.terminating": "test_the_namespace_is_seen_or_tried",
    "rights.missing": "tenant-healthy",
    "rights.excessive": "tenant-healthy",
    "admission.denied": "healthy-named-objects",
    "pod-security.denied": "healthy-named-objects",
    "quota.exceeded": "quota-fits",
    "quota.in-use": "quota-fits",
    "limitrange.denied": "healthy-named-objects",
    "runtimeclass.missing": "healthy-named-objects",
    "priorityclass.missing": "healthy-named-objects",
    "serviceaccount.missing": "healthy-named-objects",
    "admission.webhook-down": "test_a_webhook_refuses_by_whatever_status",
    "admission.changed": "healthy-webhook-adds",
    "admission.no-dry-run": "test_what_no_gate_said_is_not_reported",
    # layer 4
    "nodes.none": "one-gpu-node",
    "nodes.no-gpu": "healthy-cpu-nodes",
    "nodes.too-few": "healthy-cordoned-third",
    "nodes.not-ready": "healthy-other-nodes-sick",
    "nodes.tainted": "healthy-other-nodes-sick",
    "nodes.cordoned": "node-cordoned-spare",
    "nodes.pressure": "healthy-other-nodes-sick",
    "nodes.unhealthy": "healthy-other-nodes-sick",
    "nodes.devices-refused": "test_a_kubelet_that_refused_devices_is_reported_until_a_pod_gets_some",
    "nodes.drift": "drift-allowed",
    "nodes.kubelet-skew": "healthy-other-nodes-sick",
    "nodes.other-kind": "two-pools-by-product",
    # layer 5
    "gpu.missing": "healthy-busy",
    "gpu.none-allocatable": "healthy-dra-only",
    "gpu.taken": "healthy-busy",
    "gpu.oversubscribed": "healthy-shared-spare",
    "gpu.partitioned": "mig-spare-node",
    "gpu.held-by-slurm": "healthy-b200-mpi-slinky",
    "gpu.labels-disagree": "healthy-dra-only",
    "stack.device-plugin-down": "test_a_cluster_without_a_known_plugin_is_judged_by_what_it_offers",
    "drains.blocked": "healthy-drains",
    "drains.unannounced": "healthy-drains",
    "drains.under-way": "drains-unannounced",
    "stack.operand-down": "test_a_restarted_pod_with_a_ready_one_is_fine",
    "stack.clusterpolicy": "test_the_operator_must_say_that_it_is_done",
    "stack.no-operator": "test_a_platform_without_the_operator_is_skipped_unless_it_was_promised",
    "stack.driver-upgrade": "test_a_driver_upgrade_is_no_fault_of_the_cluster",
    "dra.class-missing": "healthy-dra",
    "dra.slices-missing": "test_published_devices_are_counted_in_the_newest_generation",
    # layer 6
    "runtime.nvidia-smi": "test_what_nvidia_smi_garbled_is_not_a_missing_gpu",
    "runtime.gpu-count": "test_gpus_that_do_not_say_who_they_are_are_counted",
    "runtime.driver-old": "test_an_unreadable_driver_version_is_not_judged",
    "runtime.shm-small": "no-profile-small-nodes",
    "runtime.memlock": "test_lockable_memory_is_judged_where_the_profile_asks",
    "runtime.extra-gpus": "test_the_gpus_that_were_assigned_are_its_own",
    "runtime.toolkit-old": "managed-node-skip",
    "runtime.drift": "test_a_board_with_another_vbios_is_drift_and_equal_nodes_are_not",
    "runtime.persistence-off": "persistence-off",
    "gpu.off-bus": "test_what_nvidia_smi_garbled_is_not_a_missing_gpu",
    "gpu.mig-enabled": "mig-spare-node",
    "gpu.remap-failed": "ecc-history",
    "gpu.recovery-needed": "test_history_and_absence_are_no_ailments",
    "gpu.xid": "xid-of-a-program",
    "gpu.nvlink-down": "test_history_and_absence_are_no_ailments",
    "gpu.ecc": "healthy-mi300x",
    "gpu.row-remap": "ecc-history",
    "gpu.fabric": "test_history_and_absence_are_no_ailments",
    "gpu.throttled": "gpu-warm",
    "gpu.dcgm-failed": "dcgm-persistence",
    "runtime.dcgm-setup": "dcgm-persistence",
    # layers 7 and 8
    "dns.unresolved": "dns-slow",
    "dns.wrong-address": "healthy-dual-stack",
    "port.blocked": "healthy-policy",
    "port.in-use": "test_the_other_side_answers_for_a_silent_rank",
    "network.unreachable": "test_dns_is_at_fault_where_the_network_carries_or_no_one_has_tried_it",
    "network.ports-blocked": "healthy-policy",
    "network.mtu-blackhole": "healthy-path-mtu",
    "network.mtu-mismatch": "healthy-path-mtu",
    "network.secondary-mtu": "healthy-roce",
    "network.slow": "test_the_best_moment_is_held_against_the_floor",
    "network.endpoint-unreachable": "healthy-endpoints",
    "network.endpoint-open": "healthy-endpoints",
    # layers 9 and 10
    "rdma.resource-missing": "healthy-cpu-nodes",
    "rdma.resource-short": "healthy-busy",
    "rdma.plugin-down": "test_a_node_without_a_plugin_is_reported",
    "rdma.nad-missing": "healthy-gke-tcpxo",
    "rdma.nad-mtu": "healthy-roce",
    "rdma.not-attached": "healthy-roce",
    "rdma.no-device": "test_a_filter_that_leaves_good_cards_out_is_not_the_cards_fault",
    "rdma.not-mounted": "healthy-gke-tcpxo",
    "rdma.wrong-link-layer": "healthy-efa",
    "rdma.no-subnet-manager": "test_a_spare_port_may_be_down",
    "rdma.port-down": "test_a_spare_port_may_be_down",
    "rdma.rate-low": "healthy-efa",
    "rdma.gid-missing": "test_a_gid_index_must_be_set_where_nccl_is_asked_to_use_it",
    "rdma.pkey-empty": "healthy-partitioned",
    "rdma.pkey-limited": "healthy-partitioned",
    "rdma.errors": "healthy-congestion",
    "rdma.low-bandwidth": "low-bandwidth-fast-writes",
    "rdma.low-bandwidth-all": "rdma-slow-link",
    "rdma.low-bandwidth-gpu": "low-bandwidth-fast-writes",
    "rdma.write-failed": "test_a_known_error_fails_and_any_other_has_measured_nothing",
    "topology.inadmissible": "healthy-numa-restricted",
    "topology.policy-differs": "healthy-numa-restricted",
    "topology.affinity": "healthy-numa-restricted",
    "topology.gpu-nic-far": "test_fewer_cards_than_gpus_cannot_all_be_near",
    "topology.differs": "healthy-firmware-drift",
    "topology.acs": "test_acs_is_judged_where_it_can_be_read",
    # layers 11 and 12
    "nccl.program": "test_wrong_sums_end_badly_but_they_end",
    "nccl.ranks-missing": "healthy-nccl-tests",
    "nccl.impossible-bandwidth": "healthy-gb200-mnnvl",
    "nccl.intra-node-path": "test_shared_memory_is_normal_on_pcie_machines",
    "nccl.low-bandwidth-node": "bandwidth-wavers-little",
    "nccl.low-bandwidth-sendrecv": "bandwidth-wavers-little",
    "nccl.low-bandwidth-alltoall": "bandwidth-wavers-little",
    "nccl.unstable": "bandwidth-wavers-little",
    # layer 14
    "job.unschedulable": "healthy-autoscaled",
    "job.no-scheduler": "test_a_pod_that_no_scheduler_has_looked_at_says_so",
    "job.start-timeout": "image-slow",
    "job.disrupted": "pod-deleted",
    "job.one-after-another": "test_real_ranks_that_ran_one_after_another_are_reported",
    "job.deadline": "test_deadline_of_a_running_job_and_of_one_that_never_started",
    "job.failed": "test_a_failing_init_container_is_seen_and_a_stopped_sidecar_is_not",
    "job.log-unreachable": "test_what_was_heard_or_only_not_found_is_nothing_of_the_kind",
    "job.no-evidence": "healthy-crowded",
    "image.pull": "image-slow",
    "image.no-python": "healthy-nccl-tests",
    "container.config": "healthy-named-objects",
    "container.oom": "test_pressure_on_a_node_explains_a_sigkill",
    "container.start": "healthy-named-objects",
    "node.simulated": "test_a_container_that_failed_before_it_was_made_is_no_simulation",
    "lab.machine": "test_how_a_container_ended_says_whose_fault_it_is",
    "node.lost": "test_a_taint_of_the_admin_is_a_disruption_and_not_a_lost_node",
    "volume.mount": "healthy-storage-later",
    "launcher.missing": "test_a_kind_is_there_in_the_right_version_or_not",
    "launcher.runtime-missing": "healthy-trainjob",
    "launcher.runtime-unknown": "test_what_kueue_says_of_a_trainjobs_runtime",
    "mpi.wrong-version": "healthy-mpijob",
    "operator.down": "test_what_is_shown_with_a_controller_is_not_taken_for_it",
    "queue.missing": "healthy-kueue",
    "queue.stopped": "healthy-kueue",
    "queue.namespace": "healthy-kueue",
    "queue.flavor": "kueue-full",
    "queue.uncovered": "test_a_tenant_who_sees_no_clusterqueue_judges_the_rest",
    "queue.quota-short": "healthy-kueue-gang",
    "queue.topology": "test_nodes_of_a_flavor_have_the_labels_of_its_topology",
    "queue.unlike-hardware": "healthy-kueue",
    "queue.unmanaged": "healthy-kueue-mpijob",
    "queue.waiting": "healthy-kueue",
    "gang.unschedulable": "healthy-volcano",
    "gang.partial": "healthy-volcano",
    "gang.started": "healthy-kueue-gang",
    "mpi.sshd-missing": "healthy-mpijob",
    "mpi.mpirun-missing": "healthy-nccl-tests",
    "mpi.ssh-failed": "test_other_words_stay_the_programs_own",
    "training.failed": "training-healthy",
    "training.no-end": "test_steps_that_did_not_complete",
    "training.product-differs": "test_bits_of_another_kind_of_gpu_or_library_are_no_corruption",
    "training.loss-not-finite": "training-loss-stays",
    "training.loss-not-falling": "training-nan-loss",
    "training.slow-gpu": "training-exposed-little",
    "training.slow-node": "training-slow-gpu",
    "training.low-tflops": "training-above-floor",
    "training.exposed-communication": "training-exposed-little",
    "training.step-waves": "test_two_slow_steps_are_no_waves",
    # layer 15
    "checkpoint.failed": "test_only_a_file_system_that_refused_is_at_fault",
    "checkpoint.corrupt": "healthy-checkpoint",
    "checkpoint.slow": "test_the_rate_of_all_ranks_is_judged_where_the_profile_says_one",
    "checkpoint.gather-memory": "test_rank_0_that_would_gather_needs_room",
    "checkpoint.not-durable": "healthy-checkpoint",
    "checkpoint.node-local": "test_one_node_verifies_nothing_elsewhere",
    "checkpoint.exposed": "healthy-checkpoint",
    "checkpoint.not-resumed": "healthy-checkpoint",
    "storage.class-missing": "test_what_only_looks_wrong_is_quiet",
    "storage.claim-missing": "test_what_is_hidden_is_not_reported",
    "storage.claim-pending": "healthy-storage-later",
    "storage.access-mode": "test_what_only_looks_wrong_is_quiet",
    "storage.not-visible": "test_an_empty_folder_for_results_is_normal",
    "storage.files-missing": "healthy-storage",
    "storage.read-only": "healthy-storage",
    "storage.full": "healthy-storage",
    "storage.corrupt": "healthy-storage",
    "storage.hang": "test_the_path_that_hangs_is_named_and_those_after_it_are_not_reported",
    "storage.not-shared": "healthy-storage",
    "storage.stale-rename": "healthy-storage",
    "storage.rename-torn": "healthy-storage",
    "storage.stale-metadata": "healthy-storage",
    "storage.small-files-slow": "test_small_files_are_compared_with_the_profile_s_number",
    "storage.locks-local": "healthy-storage-no-locks",
    "storage.locks-failed": "test_healthy_locks_pass_also_where_none_are_required",
    "storage.locks-stuck": "test_healthy_locks_pass_also_where_none_are_required",
    "storage.slow": "healthy-storage",
    "storage.burst-slow": "healthy-storage",
    "storage.credential-missing": "healthy-storage",
    "storage.s3-unreachable": "healthy-s3",
    "storage.s3-bucket-missing": "healthy-s3",
    "storage.s3-no-credentials": "test_a_bucket_is_judged_by_any_answer",
    # layers 16 and 18
    "images.not-by-digest": "test_images_are_judged_as_the_profile_asks",
    "images.registry": "test_a_registry_is_allowed_by_whole_path_parts",
    "images.slow-pull": "image-slow",
    "images.pull-secret-missing": "healthy-named-objects",
    "observability.dcgm-missing": "healthy-observed",
    "observability.servicemonitor-missing": "healthy-observed",
    # a sweep
    "sweep.fleet": "sweep-flaky",
    "sweep.node": "sweep-flaky",
    "sweep.rail": "sweep-node",
    "sweep.uplink": "sweep-node",
    "sweep.pair": "sweep-flaky",
    "sweep.suspect": "sweep-node",
    "sweep.groups": "sweep-node",
    "sweep.plane": "sweep-rail",
    "sweep.noise": "sweep-healthy",
    "sweep.level": "sweep-healthy",
    "sweep.scale": "test_a_slow_job_over_a_bad_path_is_no_fault_of_its_own",
    "sweep.not-tested": "sweep-healthy",
    "sweep.misplaced": "sweep-preempted",
}


@pytest.fixture(scope="module")
def scenarios():
    done = subprocess.run(
        [sys.executable, "-m", "lab", "--list", "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {entry["name"]: entry for entry in json.loads(done.stdout)}


def test_every_fault_of_the_cluster_has_a_near_miss():
    """A new fault needs a world in which it must not be reported."""
    assert sorted(NEAR_MISSES) == sorted(set(FAULTS) - set(fault_catalogue()))


def test_every_near_miss_exists_and_does_not_show_the_fault(scenarios):
    """A near miss is not a scenario that must find the fault; a test is identified by its name."""
    tests = {
        node.name for path in TESTS for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
    }
    for fault, near in NEAR_MISSES.items():
        if near.startswith("test_"):
            assert near in tests, (fault, near)
        else:
            assert near in scenarios, (fault, near)
            assert fault not in scenarios[near]["faults"], (fault, near)
