"""The page in a real browser: it fits, it is readable, it asks nobody for anything, and its buttons work."""

import functools
import os
import shutil

import pytest

from tests.program import own_pytest, seatrial

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: the page is not looked at in a browser"),
]
CONFTEST = """
import checks.framework.session
checks.framework.session.Session.open = lambda self, cwd: None
pytest_plugins = ["checks.framework.fixtures", "checks.framework.plugin", "reports.plugin"]
"""
CHECKS = """
import os
import pytest
from reports.stash import RUN

NODES = [f"gpu-node-{number}" for number in range(int(os.environ["NODES"]))]
ROWS = [{"size_bytes": 2**n, "in_place": {"busbw_gbps": 4.0 * n}, "out_of_place": None} for n in range(20, 34)]

@pytest.mark.check("nodes.gpu", "All GPU nodes are Ready")
def test_nodes(evidence, request):
    run = request.config.stash[RUN]
    run.pool, run.trial = tuple(NODES), {"hosts": {f"pod-{n}": node for n, node in enumerate(NODES)}}
    run.collectives = {"ring": {"sentence": "16 ranks: pod-1 is slow", "tables": [{"rows": ROWS}]}}
    run.floors = {"ring": [{"size_bytes": 2**33, "busbw_gbps": 120.0, "source": "a source"}]}
    ranks = [{"node": node, "gpu": gpu, "compute_ms": 50.0 + gpu} for node in NODES for gpu in range(8)]
    pace = {"tflops": 400.0, "step_ms": 56.0, "exposed_share": 0.02, "steps": 40, "spread": 0.01}
    run.training = pace | {"series_ms": [55.0, 57.0] * 20, "floor_tflops": 420.0, "floor_source": "s", "ranks": ranks}
    states = [{"step": 2, "state": state, "seconds": n} for n, state in enumerate(("writing", "local", "durable"))]
    run.checkpoint = {"nodes": [{"node": node, "states": states} for node in NODES]}
    run.bom = {"nodes": {"driver": {"580.95": 1, "570.10": len(NODES) - 1}, "os": {"Ubuntu": len(NODES)}}}
    for node in NODES:
        evidence.add(node, ok=True, observed="Ready", expected="Ready, without pressure")
    evidence.verdict()

@pytest.mark.parametrize("gpu", range(2))
def test_nothing(gpu):
    pass

@pytest.mark.check("runtime.health", "No GPU reports a memory fault")
def test_health(evidence):
    for node in NODES:
        for gpu in range(8):
            bad = node == "gpu-node-1" and gpu == 3
            evidence.add(f"{node} GPU {gpu}", ok=not bad, observed="a remap failed" if bad else "no memory fault",
                         fault="gpu.missing" if bad else "")
    evidence.verdict()

@pytest.mark.check("rdma.devices", "Every pod has its RDMA devices", requires=["runtime.health"])
def test_rdma(evidence):
    evidence.verdict()
"""


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """Return a function: a number of nodes to the page of a run over them, with one bad GPU on the second node."""

    @functools.cache
    def made(nodes):
        folder = tmp_path_factory.mktemp(f"nodes{nodes}")
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_sample.py").write_text(CHECKS)
        env = os.environ | {"NODES": str(nodes)}
        arguments = ["-p", "no:cacheprovider", "--cluster", "sim:x", "--out", "out"]
        done = seatrial(*arguments, env=env, cwd=folder, main=own_pytest)
        assert done.returncode == 1, done.stdout + done.stderr
        return folder / "out" / "report.html"

    return made


@pytest.fixture(scope="module")
def browser():
    """One headless Chromium for the module."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
        try:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*flags, "--disable-component-update"])
        except sync_api.Error as error:
            pytest.skip(f"chromium does not start here: {error.message.splitlines()[0]}")
        yield browser
        browser.close()


@pytest.fixture
def look(browser, page_of):
    """Open the page of so many nodes; at the end nothing may have gone wrong in it, or been asked of the network."""
    trouble, contexts = [], []

    def opened(nodes, width=1280, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.on("console", lambda said: trouble.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on(
            "request", lambda asked: None if asked.url.startswith(("file:", "data:")) else trouble.append(asked.url)
        )
        page.goto(f"file://{page_of(nodes)}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []


@pytest.mark.parametrize("nodes", [2, 64, 1000])
def test_the_page_fits_every_screen(look, nodes):
    """No page is wider than its window, on a telephone either; verdict and culprit are seen without scrolling."""
    for width in (390, 1280, 1920):
        page = look(nodes, width)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
        assert page.locator(".hero .culprit").bounding_box()["y"] < 400
        assert page.locator(".hero .culprit").inner_text() == "gpu-node-1 GPU 3: a remap failed"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_everybody_can_read_it(look, scheme, width):
    """axe-core finds nothing serious: contrast (WCAG AA), labels, language, what the keyboard reaches."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = look(2, width, scheme)
    violations = axe.Axe().run(page).response["violations"]
    said = [
        (each["id"], each["nodes"][0]["html"][:200]) for each in violations if each["impact"] in ("serious", "critical")
    ]
    assert said == []


def test_a_head_sorts_the_nodes(look):
    """Those with findings first, by mouse and by keyboard; by name in the order of their numbers."""
    page = look(64)
    names = page.locator(".matrix tbody tr td:first-child")
    page.get_by_role("button", name="runtime").click()
    assert names.first.inner_text() == "gpu-node-1"
    page.get_by_role("button", name="node", exact=True).focus()
    page.keyboard.press("Enter")
    assert names.first.inner_text() == "gpu-node-63"
    page.keyboard.press("Enter")
    assert names.all_inner_texts()[:3] == ["gpu-node-0", "gpu-node-1", "gpu-node-2"]


def test_a_node_opens_its_findings(look):
    """What was found there, and nothing of its neighbours; a second press closes it."""
    page = look(64)
    button = page.get_by_role("button", name="gpu-node-1", exact=True)
    button.click()
    assert page.locator(".matrix .opened").inner_text().strip() == "runtime.health gpu-node-1 GPU 3: a remap failed"
    assert button.get_attribute("aria-expanded") == "true"
    button.click()
    assert page.locator(".matrix .opened").count() == 0


def test_a_command_is_copied(look):
    """The button says so once it is done; where a browser has no clipboard, the command is selected."""
    page = look(2)
    button = page.locator(".command button").first
    command = page.locator(".command code").first.inner_text()
    button.click()
    page.wait_for_function("['copied', 'selected'].includes(document.querySelector('.command button').textContent)")
    if button.inner_text() == "selected":
        assert page.evaluate("getSelection().toString()") == command
    else:
        page.evaluate("document.body.prepend(document.createElement('textarea'))")
        page.locator("textarea").first.focus()
        page.keyboard.press("Control+V")
        assert page.locator("textarea").first.input_value() == command


def test_a_command_is_selected_without_a_clipboard(look):
    """A browser that refuses the clipboard leaves the command selected, for the keyboard."""
    page = look(2)
    page.evaluate("document.execCommand = () => false; Object.defineProperty(navigator, 'clipboard', {value: null})")
    button = page.locator(".command button").first
    button.click()
    assert button.inner_text() == "selected"
    assert page.evaluate("getSelection().toString()") == page.locator(".command code").first.inner_text()


def test_a_large_page_is_bounded(page_of):
    """1,000 nodes of eight GPUs fit into 1.5 MB."""
    assert page_of(1000).stat().st_size < 1_500_000


def test_what_differs_between_nodes_is_marked(look):
    """Two drivers are; one operating system is not."""
    page = look(64)
    assert page.locator("tr.differs").all_inner_texts() == ["nodes driver\t580.95 (1), 570.10 (63)"]
