"""A stand-in for NCCL's RAS thread: uses the protocol of a version, complete, slowly, truncated, or garbage.

python ras_standin.py VERSION MANNER [PORT]; counts of MANNER "late" stop with rank 1 behind, those of "alive" advance.
Reads commands like src/ras/client_support.cc: SET FORMAT since 2.28.7; after an unknown command it sends an error and
continues.
"""

import json
import os
import socket
import sys
import threading
import time


def text(version, counts, host):
    counted = sorted(set(counts), reverse=True)
    state = "OK" if len(counted) == 1 else "MISMATCH"
    lines = [
        f"NCCL version {version} compiled with CUDA 12.8",
        "CUDA runtime version 12080, driver version 12080",
        "",
        "Job summary",
        "===========",
        "",
        "  Nodes  Processes         GPUs  Processes     GPUs",
        "(total)   per node  per process    (total)  (total)",
        f"      1          {len(counts)}            1          {len(counts)}        {len(counts)}",
        "",
        "Communicators... (0.00s)",
        "=============",
        "",
        "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors",
        "    #  in group  per comm  per node  per comm  in group",
        f"    0         1         1         {len(counts)}         {len(counts)}         {len(counts)}   RUNNING  {state}",
        "",
        "Errors",
        "======",
        "",
        "Warnings",
        "========",
        "",
    ]
    if state == "MISMATCH":
        lines += [
            "#0-0 (fecffc8b45a72b88) MISMATCH",
            "  Communicator ranks have different AllReduce operation counts",
            f"  {counts.count(counted[0])} ranks have launched up to operation {counted[0]}",
        ]
        lines += [
            f"  Rank {rank} has launched up to operation {count} -- GPU {rank} managed by process {100 + rank} on node {host}"
            for rank, count in enumerate(counts)
            if count != counted[0]
        ]
    return "\n".join(lines) + "\n\n"


def as_json(version, counts, host):
    ranks = [
        {
            "rank": rank,
            "host": host,
            "pid": 100 + rank,
            "cuda_dev": rank,
            "nvml_dev": rank,
            "status": {"init_state": 0, "async_error": 0},
            "collective_counts": {"AllReduce": count, "Broadcast": 0},
        }
        for rank, count in enumerate(counts)
    ]
    comm = {"hash": "0xfecffc8b45a72b88", "size": len(counts), "ranks_count": len(counts), "missing_ranks_count": 0}
    comm |= {"ranks": ranks}
    return json.dumps(
        {
            "nccl_version": version,
            "timestamp": time.ctime(),
            "communicators_count": 1,
            "communicators": [comm],
            "ras": {"timeouts_count": 0},
        },
        indent=2,
    )


class Server:
    """One listening socket; `heard` holds every line from clients."""

    def __init__(self, version, manner, port=0, host="127.0.0.1"):
        self.version, self.manner, self.host = version, manner, host
        self.heard, self.asked = [], 0
        self.closed = threading.Event()
        self.socket = socket.create_server(("127.0.0.1", port))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.converse, args=(connection,), daemon=True).start()

    def converse(self, connection):
        with connection:
            if self.manner == "garbage":
                connection.recv(100)
                connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00 HTTP/1.1 400 Bad Request\r\n\r\n" * 100)
            elif self.manner == "silent":
                connection.recv(100)
                self.closed.wait()
            else:
                self.reply(connection)

    def reply(self, connection):
        form = "text"
        with connection.makefile("rb") as lines:
            for raw in lines:
                line = raw.decode().strip()
                self.heard.append(line)
                if line.startswith("CLIENT PROTOCOL "):
                    connection.sendall(b"SERVER PROTOCOL 2\n")
                elif line.startswith("TIMEOUT "):
                    connection.sendall(b"OK\n")
                elif line.startswith("SET FORMAT ") and tuple(map(int, self.version.split("."))) >= (2, 28, 7):
                    form = line.split()[-1]
                    connection.sendall(b"OK\n")
                elif line == "VERBOSE STATUS":
                    self.answer(connection, form)
                    return
                else:
                    connection.sendall(f"ERROR: Unknown command {line}\n".encode())

    def answer(self, connection, form):
        counts = [21, 20, 21, 21] if self.manner != "alive" else [20 + self.asked] * 4
        self.asked += 1
        whole = (as_json if form == "json" else text)(self.version, counts, self.host).encode()
        if self.manner == "half":
            whole = whole[: len(whole) // 2]
        step = max(1, len(whole) // 5) if self.manner == "slow" else len(whole)
        for at in range(0, len(whole), step):
            connection.sendall(whole[at : at + step])
            time.sleep(0.02 if self.manner == "slow" else 0)

    def close(self):
        self.closed.set()
        self.socket.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread
        self.socket.close()


if __name__ == "__main__":
    name = os.environ.get("HOSTNAME") or socket.gethostname()
    index, number = int(os.environ.get("JOB_COMPLETION_INDEX", "0")), int(os.environ.get("RANKS", "0"))
    for rank in range(index * number, (index + 1) * number):
        head = f"{name}:{100 + rank}:{100 + rank} [{rank % number}] NCCL INFO"
        print(head, f"NCCL version {sys.argv[1]}+cuda12.8")
        for end in ("Init START", "Init COMPLETE"):
            print(
                head,
                f"ncclCommInitRank comm 0x{rank + 1:x}0 rank {rank} nranks 4 cudaDev {rank % number} nvmlDev 0 busId 1000 commId 0xfecffc8b45a72b88 - {end}",
            )
        print(head, f"the last words of rank {rank}", flush=True)
    Server(sys.argv[1], sys.argv[2], int(sys.argv[3]), os.environ.get("ADDRESS", "127.0.0.1"))
    print("ready", flush=True)
    threading.Event().wait()
