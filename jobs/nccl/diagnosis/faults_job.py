"""What can be wrong with a job as a whole? Its network, its end, its results, and what the log does not show."""

from __future__ import annotations

from .fault import add

FAULTS: dict[str, dict[str, str]] = {}


# -- what the job as a whole shows -------------------------------------------------------------------------------------
add(
    FAULTS,
    "nccl.socket-fallback",
    "degraded",
    "Ranks on different hosts talk over plain TCP sockets",
    "NCCL found no usable RDMA network, or was told not to use one, and took plain sockets",
    "ibv_devinfo (or fi_info -p efa) inside the same container; then grep 'NET/' in the log of one rank",
    "make the RDMA devices, their libraries and NCCL's network plugin visible in the pod; compare with a pod where it "
    "works",
    "transport/net.cc (the channel lines), plugin/net.cc (Using network); NVIDIA/nccl#952",
)
add(
    FAULTS,
    "nccl.mixed-transport",
    "fatal",
    "Ranks of one job use different transports",
    "some ranks reached the RDMA network and others did not, so the slowest path sets the pace or the two sides "
    "cannot connect",
    "grep -E 'Using network|via NET/' in the logs of a good and of a bad rank",
    "repair the ranks that fell back (device, plugin or permission on that node); the other ranks are healthy",
    "aws/aws-ofi-nccl#715, NVIDIA/nccl-tests#188",
)
add(
    FAULTS,
    "nccl.gdr-off",
    "degraded",
    "RDMA works, but without GPUDirect",
    "data is staged through host memory: the channel lines carry no /GDRDMA",
    "lsmod | grep nvidia_peermem; NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH shows 'GPU Direct RDMA ... Disabled' with the "
    "reason",
    "load nvidia-peermem (or use the open kernel modules with DMA-BUF); check the GPU-NIC distance with nvidia-smi "
    "topo -m",
    "graph/paths.cc:ncclTopoCheckGdr; NVIDIA/nccl#1537, #1939",
)
add(
    FAULTS,
    "nccl.gdr-mixed",
    "degraded",
    "GPUDirect works for some connections and not for others",
    "one host, or one direction, has no GPUDirect: peermem missing on a node, or reads switched off",
    "lsmod | grep nvidia_peermem on every host; compare the hosts in the pair matrix",
    "load nvidia-peermem on the host without it; where only sends lack it, NCCL_NET_GDR_READ=1",
    "NVIDIA/nccl#897; graph/paths.cc",
)
add(
    FAULTS,
    "nccl.rail-missing",
    "degraded",
    "A host uses fewer network rails than it should",
    "a NIC, cable or device request is missing: fewer devices carry channels there than expected",
    "ibstat on that host and on a good one; kubectl get pod POD -o yaml shows the RDMA resource that it asked for",
    "bring the port up, or request all devices; do not infer rails from bandwidth",
    "transport/net.cc (sendSetup and recvSetup print each channel's device)",
)
add(
    FAULTS,
    "nccl.wrong-fabric",
    "degraded",
    "The data runs over another fabric than expected",
    "the transport in the channel lines is not the one the profile names",
    "grep -m3 'via NET/' in the log; ibv_devinfo | grep link_layer",
    "select the right devices with NCCL_IB_HCA, or load the fabric's own plugin",
    "transport/net.cc (the channel lines), transport/net_ib.cc (the list of devices and link layers)",
)
add(
    FAULTS,
    "nccl.hang",
    "fatal",
    "A collective never finished",
    "ranks waited until a watchdog or a time limit ended the job: one rank is missing, or the network stalls",
    "py-spy dump --pid PID on the rank that is behind; compare the last operation of every rank",
    "look at the rank that is missing or behind; if all wait in the same operation, test the links between the hosts",
    "pytorch/pytorch#118369; hiyouga/LlamaFactory#7396",
)
add(
    FAULTS,
    "nccl.crash",
    "fatal",
    "The job ended with an error",
    "a process failed; the first warning before the first error trace is the best lead",
    "grep -m3 'NCCL WARN' in the log of every rank; without one repeat with NCCL_DEBUG=INFO",
    "repair what the first warning names; later messages of other ranks are consequences",
    "include/checks.h (NCCLCHECK prints the trace back, the warning stands before it)",
)
add(
    FAULTS,
    "nccl.log-truncated",
    "info",
    "The log ends before the job does",
    "the end is missing: rotated away, cut by a size limit, or the job was killed",
    "grep -c 'Init COMPLETE' in the log; tail -3 of it shows where it ends",
    "read the log from the container's start, or let every rank write its own NCCL_DEBUG_FILE",
    "init.cc (Init START and COMPLETE); nccl-tests common.cu (the last lines of a table)",
)
add(
    FAULTS,
    "nccl.separate-runs",
    "info",
    "Each process ran a job of its own",
    "the same rank is listed by several processes: the benchmark was built without MPI, so that the launcher started "
    "copies that know nothing of each other, and nothing crossed hosts",
    "ldd all_reduce_perf | grep libmpi; count the lines '# Rank  0' in the output",
    "build nccl-tests with MPI=1 (and MPI_HOME), or start it under the launcher that it was built for",
    "nccl-tests README (Build, Running on multiple nodes); NVIDIA/nccl-tests#182",
)
add(
    FAULTS,
    "nccl.wrong-results",
    "fatal",
    "The collective delivered wrong data",
    "data corruption: a bad GPU, NIC, cable or switch, or a library bug",
    "all_reduce_perf -b 1G -e 1G -c 1 on each pair of hosts; then with NCCL_P2P_DISABLE=1, and with "
    "NCCL_NET_GDR_LEVEL=LOC",
    "take the component that every failing pair shares out of service",
    "nccl-tests common.cu (out of bounds)",
)
add(
    FAULTS,
    "nccl.version-mismatch",
    "fatal",
    "Ranks run different NCCL versions",
    "different images or libraries on the nodes",
    "grep 'NCCL version' in the log; ldconfig -p | grep nccl in each pod",
    "run the same image, by digest, everywhere",
    "init.cc (2.23.4+); NVIDIA/nccl-tests#185",
)
add(
    FAULTS,
    "nccl.no-evidence",
    "info",
    "The log does not show what carried the data",
    "NCCL printed no channel lines here: NCCL_DEBUG was not INFO, or the lines went elsewhere",
    "grep -c 'NCCL INFO' in the log; look for NCCL_DEBUG and NCCL_DEBUG_FILE in the job's environment",
    "run again with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET,GRAPH,TUNING",
    "NCCL user guide, NCCL_DEBUG and NCCL_DEBUG_SUBSYS; transport/net.cc",
)
add(
    FAULTS,
    "nccl.low-bandwidth",
    "degraded",
    "The bus bandwidth is below what this hardware gives",
    "a slow or congested link, a wrong algorithm or protocol setting, or a GPU that is throttled",
    "NCCL_ALGO=Ring all_reduce_perf -b 1G -e 8G -f 2 on pairs of hosts; then their port counters",
    "isolate the slow pair; check link rate, PFC and adaptive routing on its path",
    "nccl-tests util.cu (NCCL_TESTS_MIN_BW)",
)
add(
    FAULTS,
    "nccl.bandwidth-falls",
    "degraded",
    "The bus bandwidth falls as messages grow",
    "a congested or flapping link, or a PFC storm: large messages lose more than small ones gain",
    "all_reduce_perf -b 1G -e 1G on pairs of hosts; ethtool -S on their ports, and the switches' discard and pause "
    "counters",
    "take the link that every slow pair shares out of service",
    "measured on real logs (a run that fell from 8.8 to 1.1 GB/s)",
)
add(
    FAULTS,
    "nccl.odd-numbers",
    "info",
    "The table holds numbers that cannot be measurements",
    "nan, inf or values beyond any hardware: a timer or a single-rank run",
    "all_reduce_perf -b 1G -e 1G -n 100",
    "do not judge this run by these rows",
    "nccl-tests common.cu",
)
