"""Help texts of mpirun of Open MPI 4, as printed between two rules."""

from __future__ import annotations

RULE = "-" * 74
NOTHING = """mpirun could not find anything to do.

It is possible that you forgot to specify how many processes to run
via the "-np" argument."""
ROOT = """mpirun has detected an attempt to run as root.

Running as root is *strongly* discouraged as any mistake (e.g., in
defining TMPDIR) or bug can result in catastrophic damage to the OS
file system, leaving your system in an unusable state.

You can override this protection by adding the --allow-run-as-root option
to the cmd line or by setting two environment variables in the following way:
the variable OMPI_ALLOW_RUN_AS_ROOT=1 to indicate the desire to override this
protection, and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 to confirm the choice."""
SLOTS = """There are not enough slots available in the system to satisfy the {wanted}
slots that were requested by the application:

  {program}

Either request fewer slots for your application, or make more slots
available for use."""
DAEMONS = """ORTE was unable to reliably start one or more daemons.
This usually is caused by:

* not finding the required libraries and/or binaries on
  one or more nodes. Please check your PATH and LD_LIBRARY_PATH settings.

* an inability to create a connection back to mpirun due to a
  lack of common network interfaces and/or no route found between them."""
EXECUTABLE = """mpirun was unable to find the specified executable file, and therefore
did not launch the job.  This error was first reported for process
rank {rank}; it may have occurred for other processes as well.

Node:       {node}
Executable: {program}"""
SIGNAL = "mpirun noticed that process rank {rank} with PID 0 on node {node} exited on signal {number} ({name})."
ABORTED = """Primary job  terminated normally, but 1 process returned
a non-zero exit code. Per user-direction, the job has been aborted."""
NONZERO = """mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[{job},1],{rank}]
  Exit code:    {code}"""


def framed(text: str) -> str:
    """Return a text between its rules."""
    return f"{RULE}\n{text}\n{RULE}"
