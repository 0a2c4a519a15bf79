"""The page in a real browser: it fits, is readable, makes no request, and its buttons work."""

import functools
import os
import re
import shutil

import pytest

from reports import html
from reports.compare.text import page as compared
from reports.record import Run
from reports.schema import completed
from tests.hang.recorded import DATA as HANG
from tests.program import own_pytest, seatrial
from tests.reports.records import compare, record
from tests.reports.test_sweep_page import swept

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: the page is not tested in a browser"),
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


def page_of_a_healthy_run(folder):
    """Return the page as users get it."""
    done = seatrial("accept", "--cluster", "sim:healthy", "--out", "out", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "out" / "report.html").read_text()


def page_of_a_sweep(_):
    """Return the page of 64 nodes, of which one has a slow rail."""
    sweep = swept(64, 16, lambda nodes: {(nodes[7], 3): 0.6})
    nodes = tuple(each["name"] for each in sweep["elements"]["nodes"])
    return html.page(Run(sweep=sweep, pool=nodes, trial={"hosts": dict(enumerate(nodes))}))


def page_of_a_hang(_):
    """Return the page as `seatrial explain --format html` prints it."""
    done = seatrial("explain", "--format", "html", str(HANG / "nccl-2.28.9" / "sleep"))
    assert done.returncode == 1, done.stderr
    return done.stdout


def page_of_a_comparison(_):
    """Return the page of two runs with noise."""
    before, after = record(1), record(2, scale=0.8)
    return compared(compare([before], [after]), [completed(before)], [completed(after)])


PAGES = {
    "healthy": page_of_a_healthy_run,
    "sweep": page_of_a_sweep,
    "hang": page_of_a_hang,
    "compare": page_of_a_comparison,
}


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """Return a function: number of nodes to the page of a run over them, with one bad GPU on the second node."""

    @functools.cache
    def made(nodes):
        if nodes in PAGES:
            file = tmp_path_factory.mktemp(nodes) / "report.html"
            file.write_text(PAGES[nodes](file.parent))
            return file
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
    """Start one headless Chromium for the module."""
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
    """Open the page of this many nodes; finally assert that it had no error and made no request."""
    trouble, contexts = [], []

    def opened(nodes, width=1280, scheme="light", anchor=""):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.on("console", lambda said: trouble.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on(
            "request", lambda asked: None if asked.url.startswith(("file:", "data:")) else trouble.append(asked.url)
        )
        page.goto(f"file://{page_of(nodes)}#{anchor}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []


@pytest.mark.parametrize("nodes", [2, 64, 1000])
def test_the_page_fits_every_screen(look, nodes):
    """No page is wider than its window, also on a phone; verdict and culprit are visible without scrolling."""
    for width in (390, 1280, 1920):
        page = look(nodes, width)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), width
        assert page.locator(".hero .culprit").bounding_box()["y"] < 400
        assert page.locator(".hero .culprit").inner_text() == "gpu-node-1 GPU 3: a remap failed"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("which", [2, 64, "sweep", "hang", "compare"])
def test_everybody_can_read_it(look, which, scheme, width):
    """axe-core finds nothing: contrast (WCAG AA), labels, landmarks, language, keyboard access."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page = look(which, width, scheme)
    violations = axe.Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in violations] == []


@pytest.mark.parametrize(("width", "most"), [(1280, 2500), (390, 6000)])
def test_a_page_of_a_healthy_run_is_short(look, width, most):
    """Passed checks are folded; printed it takes at most four pages."""
    page = look("healthy", width)
    assert page.evaluate("document.documentElement.scrollHeight") <= most
    assert page.title().startswith("go (SIMULATED) · scenario healthy · namespace default · ")
    printed = page.pdf(format="A4", margin=dict.fromkeys(("top", "bottom", "left", "right"), "12mm"))
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b(?!s)", printed)) <= 4


def test_each_bandwidth_is_a_number_with_its_floor(look):
    """Numbers are right-aligned, the margin is in percent, the source is folded."""
    page = look("healthy")
    row = page.locator(".measured tbody tr").first
    value, floor = (float(cell.inner_text()) for cell in row.locator(".number").all())
    assert row.locator("td").nth(2).inner_text() == f"{100 * (value / floor - 1):+.0f} %"
    assert row.locator(".number").first.evaluate("each => getComputedStyle(each).textAlign") == "right"
    assert row.locator("details p").first.is_hidden()
    row.locator("summary").click()
    assert row.locator("details p").first.inner_text().startswith("floor: ")


def test_the_bad_node_is_in_the_first_screen_of_nodes(look):
    """Of 1,000 nodes, those without findings share a row, and one of them is found by its name."""
    page = look(1000)
    assert [row.inner_text().split("\t")[0].strip() for row in page.locator(".matrix tbody tr").all()] == [
        "gpu-node-1",
        "999 more nodes",
    ]
    good = page.locator("[id='node/gpu-node-777']")
    assert not good.is_visible()
    page.get_by_role("searchbox").fill("node-777")
    assert good.is_visible()
    assert not page.locator("[id='node/gpu-node-1']").is_visible()
    assert page.locator(".groups li:visible").count() == 1
    page.get_by_role("searchbox").fill("")
    assert page.locator("[id='node/gpu-node-1']").is_visible()
    assert not good.is_visible()


def test_an_address_leads_to_a_node_and_to_a_check(look):
    """A node opens with its findings, a check with its observations; both are in the window."""
    page = look(64, anchor="node/gpu-node-1")
    assert page.locator(".matrix .opened").inner_text().strip() == "runtime.health gpu-node-1 GPU 3: a remap failed"
    page = look(64, anchor="node/gpu-node-40")
    assert page.locator("[id='node/gpu-node-40']").is_visible()
    page = look(64, anchor="nodes.gpu")
    assert page.get_by_text("Ready, without pressure").first.is_visible()
    page = look(64, anchor="runtime.health")
    box = page.get_by_role("heading", name="FAILED runtime.health").bounding_box()
    assert 0 <= box["y"] < 200


def test_the_contents_stay_in_sight_on_a_wide_screen(look):
    """The contents link to each part; on a phone they are a line above it."""
    page = look(2, 1280)
    page.evaluate("scrollTo(0, 1500)")
    assert page.get_by_role("link", name="All checks").bounding_box()["y"] < 400
    for link in page.locator(".contents a").all():
        assert page.locator(f"[id='{link.get_attribute('href')[1:]}']").count() == 1
    assert look(2, 390).locator(".contents").bounding_box()["height"] < 80


def test_names_of_nodes_are_on_paper(look):
    """A button that opens findings is printed as a name, too."""
    page = look(64)
    page.emulate_media(media="print")
    assert page.get_by_role("button", name="gpu-node-1", exact=True).is_visible()
    assert not page.locator(".command button").first.is_visible()


def test_a_picture_is_read_out_by_pointer_and_by_key(look):
    """A cell's value appears below it; level and floor are in the legend."""
    page = look("sweep")
    assert "floor 80 GB/s" in page.locator("#links").inner_text()
    assert "level in a leaf " in page.locator("#links").inner_text()
    figure = page.locator("figure").first
    figure.locator("rect:has(title)").nth(3).hover()
    pointed = figure.locator("figcaption").inner_text()
    assert re.fullmatch(r"n\d+( - n\d+)?: .*, 0 of 1 failed, lowest [01]\.\d\d", pointed)
    figure.locator("[data-does=read]").focus()
    page.keyboard.press("ArrowDown")
    assert figure.locator("figcaption").inner_text() not in ("", pointed)


def test_plots_have_readable_type_on_a_phone(look):
    """The letters of a plot are at least 9 pixels high in a window of 390; no plot needs scrolling."""
    page = look(64, 390)
    for text in page.locator("svg.plot text").all():
        assert text.bounding_box()["height"] >= 9
    assert page.locator("svg.plot").first.bounding_box()["width"] <= 390
    assert page.locator("svg.plot text", has_text="bus bandwidth (GB/s)").count() == 1


def test_a_head_sorts_the_nodes(look):
    """A click or key sorts by findings first, or by name in numerical order."""
    page = look(12)
    names = page.locator(".matrix tbody tr td:first-child")
    assert names.first.inner_text() == "gpu-node-1"
    page.get_by_role("button", name="node", exact=True).focus()
    page.keyboard.press("Enter")
    assert names.first.inner_text() == "gpu-node-11"
    page.keyboard.press("Enter")
    assert names.all_inner_texts()[:3] == ["gpu-node-0", "gpu-node-1", "gpu-node-2"]
    page.get_by_role("button", name="runtime").click()
    assert names.first.inner_text() == "gpu-node-1"


def test_a_node_opens_its_findings(look):
    """Only its own findings are shown; a second press closes them."""
    page = look(64)
    button = page.get_by_role("button", name="gpu-node-1", exact=True)
    button.click()
    assert page.locator(".matrix .opened").inner_text().strip() == "runtime.health gpu-node-1 GPU 3: a remap failed"
    assert button.get_attribute("aria-expanded") == "true"
    button.click()
    assert page.locator(".matrix .opened").count() == 0


def test_a_command_is_copied(look):
    """The button confirms the copy; without a clipboard the command is selected."""
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
    """Two drivers are marked; one operating system is not."""
    page = look(64)
    page.get_by_text("Bill of materials").click()
    assert page.locator("tr.differs").all_inner_texts() == ["nodes driver\t580.95 (1), 570.10 (63)"]
