"""One `sim healthy` in a separate process, with kubeconfigs of an administrator and of an unprivileged account."""

import contextlib
import subprocess
import sys

from tests.waiting import HANG_S


@contextlib.contextmanager
def serving(root, folder):
    """Start the server; yield the folder with `admin` and `nobody`, and assert its clean end."""
    command = [sys.executable, "-m", "lab", "healthy", "--json", "--until-stdin-closes"]
    command += ["--write-kubeconfig", str(folder / "admin"), "--write-nobody-kubeconfig", str(folder / "nobody")]
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert '"ready": true' in process.stdout.readline()
        yield folder
        process.stdin.close()
        assert process.wait(HANG_S) == 0
