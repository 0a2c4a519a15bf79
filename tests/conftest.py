"""What every test may ask for."""

import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """A warning is an error here; on a user's machine it must not become a verdict."""
    config.addinivalue_line("filterwarnings", "error")
    # asyncio closes the TLS transports of a server that was stopped in a later turn of its loop, and a test's loop ends
    # first (https://docs.aiohttp.org/en/stable/client_advanced.html#graceful-shutdown); the warning would then hit any test.
    config.addinivalue_line("filterwarnings", "ignore:unclosed transport:ResourceWarning")
    # A shell in the background hands SIGINT down as ignored; the tests that send it mean a terminal's.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The recorded material beside the checkout; without it the test is skipped and says so."""
    folder = ROOT.parent / "shared"
    if not (folder / "nccl-corpus").is_dir():
        pytest.skip("needs the recorded material (../shared), which is not part of the repository")
    return folder
