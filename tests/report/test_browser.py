import html
import json
import re
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from cfljax.report import write
from cfljax.store import Store
from tests.report import synthetic

CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
QUIET = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update "
    "--disable-sync --enable-logging=stderr --v=0 --virtual-time-budget=30000 --dump-dom"
)
FIGURES = (
    *("curves", "methods", "clients", "newcomers", "bytes", "seconds", "clusters"),
    *("assignment", "agreement", "groups", "mixture", "confusion", "own", "time"),
)


def opened(path, profile, width=1200, script="", fragment=""):
    """(what the page has become, what its script had to say). `script` runs at the end of the page,
    without its policy. `fragment` ends its address. The seconds of a page are virtual: they do not wait for what Chromium does in
    another thread or process, so a script must not, either."""
    if script:
        text = re.sub(r"<meta http-equiv=.*?>", "", path.read_text())
        path.write_text(text.replace("</body>", f"<script>{script}</script></body>"))
    flags = [*QUIET.split(), f"--user-data-dir={profile}", f"--window-size={width},2000"]
    done = subprocess.run(
        [CHROMIUM, *flags, path.resolve().as_uri() + fragment],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_every_figure_is_drawn_without_an_error(tmp_path):
    synthetic.everything(tmp_path / "a")
    dom, said = opened(write.report(tmp_path / "a"), tmp_path / "profile")
    root = re.search(r"<html[^>]*>", dom)[0]
    assert 'data-ready="yes"' in root and "data-error" not in root and said == []
    for name in FIGURES:
        figure = re.search(rf'<figure id="fig-{name}".*?</figure>', dom, re.S)[0]
        assert "<svg" in figure and 'class="nothing"' not in figure, name
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; CCS" in dom
    assert dom.count("data-config=") == 6
    # A run that diverged says so in a sentence with this word, but no figure has it as a number
    drawn = "".join(re.findall(r"<figure.*?</figure>", dom, re.S))
    assert drawn.count("<svg") >= len(FIGURES) and "NaN" not in drawn


@pytest.mark.parametrize("shape", ["nothing", "odd"])
def test_pages_with_little_in_them_are_drawn_without_an_error(tmp_path, shape):
    store = Store(tmp_path / "a")
    if shape == "odd":
        synthetic.add(store, "nan", 0, nan=True)
        synthetic.add(store, "one", 0, evaluations=1, method="one", label="one")
    dom, said = opened(write.report(tmp_path / "a"), tmp_path / "profile", width=500)
    root = re.search(r"<html[^>]*>", dom)[0]
    assert 'data-ready="yes"' in root and "data-error" not in root and said == []


CLICKS = """
const count = () => document.querySelectorAll("#fig-curves path[stroke]").length;
const before = count();
document.querySelector("#legend [data-config='0']").click();
const hidden = count();
document.querySelector("#legend button.plain").click();
const select = document.querySelector("#fig-curves select");
select.value = "loss";
select.dispatchEvent(new Event("change"));
const plot = document.querySelector("#fig-curves svg rect:last-of-type"), place = plot.getBoundingClientRect();
plot.dispatchEvent(new PointerEvent("pointermove", { clientX: place.right - 1, clientY: place.top + 5 }));
const heads = document.querySelectorAll("#comparison thead button");
heads[3].click();
const order = [...document.querySelector("#comparison table").querySelectorAll("tbody th")].map(cell => cell.textContent).join(",");
const bars = [...document.querySelectorAll("#fig-methods .plot svg")].find(each => each.rows);
const ranked = bars.rows.slice(1).map(row => row[0]).join(",");
document.title = JSON.stringify([before, hidden, count(), document.getElementById("tip").textContent, order, ranked]);
"""


def test_the_legend_filters_heads_sort_and_the_pointer_tells(tmp_path):
    synthetic.sweep(tmp_path / "a", methods=(("worst", 0.3), ("best", 0.9), ("middle", 0.6)))
    page = write.report(tmp_path / "a")
    dom, said = opened(page, tmp_path / "profile", script=CLICKS)
    before, hidden, after, tip, order, ranked = json.loads(
        re.search(r"<title>(.*?)</title>", dom)[1]
    )
    assert (before, hidden, after, said) == (3, 2, 3, [])
    assert tip.startswith("round 5worst1.") and tip.count(" ± ") == 3  # the highest loss first
    assert order == ranked == "best,middle,worst"


CHOICES = """
const press = number => document.querySelector(`#legend [data-config='${number}']`).click();
const menu = document.querySelector("#fig-curves select"), seen = [];
const shown = () => {
  const hidden = [...document.querySelectorAll("#legend [aria-pressed='false']")].map(each => each.textContent);
  const sorted = document.querySelector("#comparison [aria-sort]");
  const about = document.querySelector("#comparison details");
  return [hidden, document.querySelector("#fig-curves select").value, sorted.textContent, sorted.getAttribute("aria-sort"), about.open];
};
seen.push(shown());
press(0);
seen.push(decodeURIComponent(location.hash));
press(1);
seen.push(decodeURIComponent(location.hash));
location.hash = "#curve=loss&hide=FedAvg";
setTimeout(() => {
  seen.push(shown());
  location.hash = "#legend";
  setTimeout(() => { seen.push(shown()); document.title = JSON.stringify(seen); }, 50);
}, 50);
"""


def test_what_its_reader_chose_is_in_the_address(tmp_path):
    synthetic.sweep(tmp_path / "a")
    page = write.report(tmp_path / "a")
    link = "#hide=IFCA&curve=ari&sort=ARI&toggle=About+the+numbers&accuracy=constructor"
    dom, said = opened(page, tmp_path / "profile", script=CHOICES, fragment=link)
    at_first, one, two, pasted, skipped = json.loads(
        html.unescape(re.search(r"<title>(.*?)</title>", dom)[1])
    )
    assert said == [] and at_first == [["IFCA"], "ari", "ARI", "ascending", True]
    # Oracle is hidden, too: fewer names say so by `only`
    assert "only=FedAvg" in one and "hide" not in one and "curve=ari" in one and "sort=ARI" in one
    assert "hide=Oracle" in two and "only" not in two
    assert pasted[:2] == [["FedAvg"], "loss"] and skipped == pasted


# The page's own clock would load it again and again, for which virtual seconds do not wait
CLOCK = "let tick; window.setInterval = each => { tick = each; };"
ONCE = """
if (location.hash) document.title = `loaded again with ${location.hash}`;
else {
  document.querySelector("#legend [data-config='0']").click();
  const now = Date.now();
  tick();
  Date.now = () => now + 20000;
  tick();
}
"""


def test_the_page_of_a_running_sweep_loads_itself_again_and_keeps_what_was_chosen(tmp_path):
    synthetic.sweep(tmp_path / "a")
    sweep = {
        "name": "half of it",
        "units": [],
        "labels": [
            {"label": name, "units": [f"{name}-{i}" for i in range(5)], "varies": [{}] * 5}
            for name in ("fedavg", "ifca", "oracle", "fesem")
        ],
    }
    sweep["units"] = [unit for each in sweep["labels"] for unit in each["units"]]
    page = write.LivePage(tmp_path / "a", sweep, None, False).path
    page.write_text(page.read_text().replace("<head>", f"<head><script>{CLOCK}</script>"))
    dom, said = opened(page, tmp_path / "profile", script=ONCE)
    assert "<title>loaded again with #hide=FedAvg</title>" in dom and said == []
    (hidden,) = re.findall(r'<button[^>]*aria-pressed="false"[^>]*>.*?</button>', dom)
    assert ">FedAvg<" in hidden and re.search(r"disabled[^>]*><span>FeSEM – waiting<", dom)
    table = re.search(r"<table.*?</table>", dom, re.S)[0]
    assert table.count("3 of 5") == 3 and "0 of 5" in table
    # The order of the plan, not of merit
    names = re.findall(r"<th title=\"(\w+)", table)
    assert names == ["fedavg", "ifca", "oracle"] and "aria-sort" not in table


KEYS = """
const chart = document.querySelector("#fig-curves svg"), tip2 = document.getElementById("tip"), heard = [];
const press = (node, key) => {
  node.dispatchEvent(new KeyboardEvent("keydown", { key }));
  heard.push(tip2.hidden ? "" : tip2.firstChild.textContent);
};
for (const key of ["ArrowLeft", "ArrowLeft", "Home", "ArrowRight", "Escape"]) press(chart, key);
document.querySelector("#comparison thead button").click();
press(document.querySelector("#legend [data-config='1']"), "o");
const pressed = [...document.querySelectorAll("#legend [data-config]")].map(button => button.getAttribute("aria-pressed"));
const sorted = document.querySelector("#comparison thead th").getAttribute("aria-sort");
const told = ["tabindex", "aria-label"].map(name => chart.getAttribute(name));
document.title = JSON.stringify([heard.slice(0, 5), ...told, pressed, sorted, tip2.getAttribute("role")]);
"""


def test_the_keyboard_reads_curves_and_a_screen_reader_hears_them(tmp_path):
    synthetic.sweep(tmp_path / "a", methods=(("worst", 0.3), ("best", 0.9)))
    page = write.report(tmp_path / "a")
    dom, said = opened(page, tmp_path / "profile", script=KEYS)
    heard, tab, label, pressed, sort, role = json.loads(re.search(r"<title>(.*?)</title>", dom)[1])
    assert said == [] and heard == ["round 5", "round 4", "round 0", "round 1", ""]
    assert tab == "0" and label.startswith("accuracy, at the end: best 88.3 %; worst ")
    assert pressed == ["false", "true"] and sort == "descending" and role == "status"


DOWNLOADS = """
// Another thread makes the PNG of a canvas, and another process has the text of a blob: see `opened`
window.Blob = class extends Blob { constructor(parts, options) { super(parts, options); this.parts = parts; } };
HTMLCanvasElement.prototype.toBlob = function (take) {
  const bytes = Uint8Array.from(atob(this.toDataURL().split(",")[1]), letter => letter.charCodeAt(0));
  take(new Blob([bytes], { type: "image/png" }));
};
const files = {}, urls = new Map();
URL.createObjectURL = content => { urls.set("blob:" + urls.size, content); return "blob:" + (urls.size - 1); };
HTMLAnchorElement.prototype.click = function () { files[this.download] = urls.get(this.getAttribute("href")); };
for (const button of document.querySelectorAll("#fig-curves .save button, #fig-confusion .save button:last-child")) button.click();
document.querySelector("#legend [data-config='1']").dispatchEvent(new PointerEvent("pointerenter"));
const words = (nodes, of) => [...document.querySelectorAll(nodes)].map(of || (node => node.textContent));
const names = words("#fig-curves .end"), listed = words("#legend [data-config]");
const dim = words("#fig-curves path[stroke][data-line]", line => [line.dataset.line, line.classList.contains("dim")]);
document.querySelector("#comparison [data-copy]").click();
setTimeout(async () => {
  while (Object.keys(files).length < 4) await new Promise(done => setTimeout(done, 50));
  const told = { dim, names, listed, copied: String(getSelection()), look: document.documentElement.className };
  for (const [name, file] of Object.entries(files)) told[name] = name.endsWith("png") ? [file.type, file.size] : file.parts.join("");
  document.title = JSON.stringify(told);
}, 0);
"""


def test_a_figure_can_be_downloaded_and_names_its_curves(tmp_path):
    methods = (("fedavg", 0.3), ("ifca", 0.8), ("ditto", 0.6))
    # Of fewer seeds there is no sentence to copy
    synthetic.sweep(tmp_path / "a", methods=methods, seeds=5)
    page = write.report(tmp_path / "a")
    dom, said = opened(page, tmp_path / "profile", script=DOWNLOADS)
    told = json.loads(html.unescape(re.search(r"<title>(.*?)</title>", dom)[1]))
    assert (
        said == []
        and told["look"] == ""
        and told["copied"].startswith("Of 3 methods, IFCA has the highest test accuracy")
    )
    assert told["listed"][:3] == told["names"] == ["IFCA", "Ditto", "FedAvg"]
    assert sorted(told["dim"]) == [["0", True], ["1", False], ["2", True]]
    picture, (kind, size) = told["a_small_sweep_curves.svg"], told["a_small_sweep_curves.png"]
    assert kind == "image/png" and size > 5000
    drawing = ElementTree.fromstring(picture)
    assert "var(" not in picture and {"IFCA", "Ditto", "FedAvg", "round"} <= {
        each.text for each in drawing.iter()
    }
    assert (
        sum(
            each.get("stroke") == "rgb(0, 114, 178)" and each.tag.endswith("path")
            for each in drawing.iter()
        )
        == 1
    )
    lines = told["a_small_sweep_curves.csv"].splitlines()
    assert lines[0] == "curve,round,accuracy,standard deviation" and len(lines) == 1 + 3 * 6
    assert sum(line.startswith("IFCA,") for line in lines) == 6
    panels = told["a_small_sweep_confusion.csv"].splitlines()
    assert panels[0] == "panel,cluster,true group,clients" and panels[1] == "IFCA seed 0,0,0,4"
