"""The built book in a real browser: strict build, then every page as a reader meets it, with the network cut off."""

import html
import re
import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlparse

import pytest
import yaml
from docutils.nodes import make_id

from whyattention.claims import LEDGER, read_measured

CHROMIUM = shutil.which("chromium")
# No background traffic of the browser's own, and no sandbox: continuous integration runs as root.
BROWSER_ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
SMALLEST_CONTRAST = 4.5  # WCAG 2.1, level AA, text of normal size

# What MathJax cannot read it shows in red or as an error; math that Markdown did not recognise still has its dollars.
TYPESET = """() => {
  const math = [...document.querySelectorAll('.math')];
  return {
    formulas: math.length,
    untouched: math.filter(m => !m.querySelector('mjx-container')).map(m => m.textContent.slice(0, 80)),
    wrong: [...document.querySelectorAll('mjx-merror, mjx-mtext[style*="red"], mjx-mrow[style*="red"]')]
      .map(m => m.closest('.math').outerHTML.slice(0, 200)),
    spoken: [...document.querySelectorAll('mjx-container')].filter(m => m.querySelector('mjx-assistive-mml')).length,
    raw: [...document.querySelectorAll('article p, article li, article td, article dd')]
      .filter(p => !p.closest('.cell_output, pre, .math') && /\\$[^$]*\\\\[a-z]+[^$]*\\$/.test(p.innerText))
      .map(p => p.innerText.slice(0, 80)),
  };
}"""

CONTENT = """() => ({
  title: document.title,
  ids: [...document.querySelectorAll('[id]')].map(e => e.id),
  links: [...document.querySelectorAll('a[href]')].map(a => a.href),
  scripts: [...document.querySelectorAll('script[src]')].map(s => s.src),
  images: [...document.images].map(i => ({source: i.getAttribute('src'), alt: i.alt, drawn: i.naturalWidth > 0})),
})"""

# An element may be wider than the screen only inside a box that scrolls by itself.
OVERFLOW = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = e => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
  const inBox = e => { for (let p = e; p && p !== document.body; p = p.parentElement) if (scrolls(p)) return true; };
  const seen = e => e.getClientRects().length && getComputedStyle(e).visibility === 'visible';
  const wide = [...document.querySelectorAll('.bd-article *, .bd-header-article *')]
    .filter(e => !e.closest('mjx-assistive-mml'))  // present for screen readers only
    .filter(e => seen(e) && e.getBoundingClientRect().right > width + 1 && !inBox(e));
  return {page: document.scrollingElement.scrollWidth - width,
          wide: wide.slice(0, 5).map(e => e.outerHTML.slice(0, 120))};
}"""

# The contrast of every run of text against the nearest opaque background behind it.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const read = (layers, text = 'transparent', opacity = 1) => {
    canvas.globalAlpha = 1;
    for (const layer of ['white', ...layers]) { canvas.fillStyle = layer; canvas.fillRect(0, 0, 1, 1); }
    canvas.globalAlpha = opacity; canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3).map(c => {
      c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
  };
  const light = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
  const up = e => e ? [...up(e.parentElement), getComputedStyle(e)] : [];
  const worst = [];
  const walk = document.createTreeWalker(document.querySelector('.bd-article'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || !e.getClientRects().length || e.closest('script, style, .headerlink, mjx-assistive-mml')) continue;
    const line = up(e), {visibility, color} = line.at(-1), opacity = line.reduce((o, s) => o * s.opacity, 1);
    if (visibility !== 'visible' || opacity === 0) continue;
    const layers = line.map(s => s.backgroundColor);
    const [a, b] = [light(read(layers, color, opacity)), light(read(layers))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < LIMIT) worst.push(`${ratio.toFixed(2)} ${e.tagName}.${e.className} ${text.slice(0, 40)}`);
  }
  return {theme: document.documentElement.dataset.theme, worst: worst.slice(0, 5)};
}""".replace("LIMIT", str(SMALLEST_CONTRAST))


@pytest.fixture(scope="module")
def book(copy_course, tmp_path_factory, clean_environment) -> Path:
    """The HTML folder of the book, built strictly from a copy of the course that has virtual environments inside."""
    course = copy_course(tmp_path_factory.mktemp("book"))
    for name in (".venv", "venv", "env"):
        packages = course / name / "lib" / "python3.11" / "site-packages" / "somebody"
        packages.mkdir(parents=True)
        for file in ("README.md", "guide.rst", "example.ipynb"):
            (packages / file).write_text("Not of this book, and not readable as a page of it either: {ref}`nowhere`")
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ".", "-W", "-n", "--keep-going"]
    built = subprocess.run(command, cwd=course, env=clean_environment, capture_output=True, text=True)
    assert built.returncode == 0, (built.stdout + built.stderr)[-4000:]
    return course / "_build" / "html"


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, driven by playwright."""
    if CHROMIUM is None:
        pytest.skip("no chromium on the PATH; on Debian and Ubuntu: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=BROWSER_ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def address(book):
    """The book's address on a web server of this machine: a page read as a file may not fetch another."""
    handler = partial(QuietHandler, directory=book)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves files without a line of log for each."""

    def log_message(self, format, *args):
        pass


def offline_page(browser, trouble: list[str]):
    """A fresh page that reaches nothing but this machine; what goes wrong in it is appended to `trouble`."""
    page = browser.new_context(viewport=DESKTOP).new_page()

    def only_here(route):
        if route.request.url.startswith(("file:", "data:", "http://127.0.0.1:")):
            route.continue_()
        else:
            trouble.append(f"asks the network for {route.request.url}")
            route.abort()

    page.route("**/*", only_here)
    page.on("console", lambda message: trouble.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("requestfailed", lambda request: trouble.append(f"cannot load {request.url}"))
    return page


def visit(page, path: Path) -> dict:
    """Everything the tests want to know about one page: typeset at desktop width, both themes, then phone width."""
    page.set_viewport_size(DESKTOP)
    page.goto(path.as_uri())
    page.evaluate("() => window.MathJax?.startup?.promise")
    # Images load lazily, when they come near the window.
    page.evaluate("() => document.querySelectorAll('img').forEach(i => { i.loading = 'eager'; })")
    page.wait_for_function("() => [...document.images].every(i => i.complete)")
    seen = {"math": page.evaluate(TYPESET), **page.evaluate(CONTENT)}
    if page.query_selector(".bd-article"):
        # Opened details fade in: colours are read at rest.
        page.add_style_tag(content="* { animation: none !important; transition: none !important; }")
        page.evaluate("() => document.querySelectorAll('details').forEach(d => { d.open = true; })")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(f"() => document.documentElement.dataset.theme === '{scheme}'")
            seen[scheme] = page.evaluate(CONTRAST)
        page.set_viewport_size(PHONE)
        seen["phone"] = page.evaluate(OVERFLOW)
    return seen


@pytest.fixture(scope="module")
def pages(book, browser) -> dict[str, dict]:
    """What was seen on each page, by its path in the book; `trouble` lists console errors and failed requests."""
    seen = {}
    trouble = []
    page = offline_page(browser, trouble)
    for path in sorted({*book.glob("*.html"), *book.glob("chapters/*.html")} - {book / "index.html"}):
        trouble.clear()
        seen[path.relative_to(book).as_posix()] = {**visit(page, path), "trouble": list(trouble)}
    page.context.close()
    return seen


@pytest.fixture(scope="module")
def settings(root) -> dict:
    """The book's `_config.yml`."""
    return yaml.safe_load((root / "_config.yml").read_text())


def test_every_page_of_the_contents_is_built_and_loads_without_errors(pages, root):
    contents = yaml.safe_load((root / "_toc.yml").read_text())
    names = [contents["root"], *(chapter["file"] for part in contents["parts"] for chapter in part["chapters"])]
    assert {f"{name}.html" for name in names} <= set(pages)
    assert {name: page["trouble"] for name, page in pages.items() if page["trouble"]} == {}


def test_math_is_typeset_by_the_books_own_mathjax(pages):
    wrong = {
        name: page["math"]
        for name, page in pages.items()
        if any(page["math"][k] for k in ("untouched", "wrong", "raw"))
    }
    assert wrong == {}
    assert pages["chapters/glossary.html"]["math"]["formulas"] > 20
    for name, page in pages.items():
        scripts = [s for s in page["scripts"] if "mathjax" in s.lower()]
        assert len(scripts) <= 1 and all("/_static/mathjax/" in script for script in scripts), name
        assert page["math"]["spoken"] == page["math"]["formulas"], f"{name}: a formula has no MathML for screen readers"


def test_images_load_and_have_an_alternative_text(pages):
    images = [(name, image) for name, page in pages.items() for image in page["images"]]
    assert any(image["source"].startswith("../_images/") for _, image in images)
    for name, image in images:
        assert image["drawn"], f"{name}: {image['source']} does not load"
        # A figure's text says what it shows; without one, its file's name would be read aloud.
        shortest = 20 if "_images" in image["source"] else 1
        assert len(image["alt"]) >= shortest and not image["alt"].endswith(".png"), f"{name}: {image}"


def test_no_internal_link_is_dead(pages, book):
    dead = []
    for name, page in pages.items():
        for link in page["links"]:
            url = urlparse(link)
            if url.scheme != "file":
                continue
            target = Path(unquote(url.path))
            inside = target.relative_to(book).as_posix()
            known = pages.get(inside, {"ids": []})["ids"]
            if not target.is_file() or (url.fragment and unquote(url.fragment) not in [*known, "top"]):
                dead.append(f"{name} -> {inside}#{url.fragment}")
    assert dead == []


def test_buttons_lead_to_the_repository_and_to_colab(pages, settings, root):
    address, branch = settings["repository"]["url"], settings["repository"]["branch"]
    colab = f"https://colab.research.google.com/github{urlparse(address).path}/blob/{branch}/"
    notebooks = sorted(path.relative_to(root).as_posix() for path in root.glob("chapters/*.ipynb"))
    assert notebooks
    for notebook in notebooks:
        links = pages[notebook.replace(".ipynb", ".html")]["links"]
        assert colab + notebook in links
        assert f"{address}/edit/{branch}/{notebook}" in links
        assert address in links
        assert any(link.startswith(f"{address}/issues/new") for link in links)


def test_only_the_chapters_are_numbered(pages, root):
    for name, page in pages.items():
        stem = Path(name).stem
        if name.startswith("chapters/"):
            assert page["title"][0].isdigit() == stem[0].isdigit(), f"{name}: {page['title']}"
    assert pages["chapters/01_recurrence.html"]["title"].startswith("1. ")


def test_the_ledger_shows_what_the_notebooks_store(book, root):
    """Every measured line of the built page is the text of that figure's stored output, and no line is missing."""
    stored = {}
    for path in root.glob("chapters/*.ipynb"):
        stored |= {make_id(f"measured {name}"): (path, figure.text) for name, figure in read_measured(path).items()}
    page = (book / "chapters" / "ledger.html").read_text(encoding="utf-8")
    lines = re.findall(r'<a [^>]*href="([^"#]*)#(measured-[^"]*)"[^>]*><span[^>]*>(.*?)</span></a>', page)
    assert [cell for _, cell, _ in lines] == [make_id(f"measured {name}") for claim in LEDGER for name in claim.figures]
    for address, cell, text in lines:
        path, expected = stored[cell]
        assert (address, html.unescape(text)) == (f"{path.stem}.html", expected)
        assert f'id="{cell}"' in (book / "chapters" / address).read_text(encoding="utf-8")


def test_nothing_overflows_a_phone(pages):
    assert {
        n: p["phone"] for n, p in pages.items() if "phone" in p and (p["phone"]["page"] > 0 or p["phone"]["wide"])
    } == {}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_in_both_themes(pages, theme):
    shown = {name: page[theme] for name, page in pages.items() if theme in page}
    assert all(page["theme"] == theme for page in shown.values())
    assert {name: page["worst"] for name, page in shown.items() if page["worst"]} == {}


def test_the_theme_button_and_the_search_work_offline(browser, address):
    page = offline_page(browser, trouble := [])
    page.goto(f"{address}/chapters/glossary.html")
    modes = set()
    for _ in range(3):
        modes.add(page.evaluate("() => document.documentElement.dataset.mode"))
        page.click(".theme-switch-button >> visible=true")
    assert modes == {"light", "dark", "auto"}
    page.goto(f"{address}/search.html?q=gradient+clipping")
    page.wait_for_selector("#search-results li a[href*='glossary']")
    page.context.close()
    assert trouble == []


def test_the_books_address_leads_to_the_opening_page(browser, book):
    page = offline_page(browser, trouble := [])
    page.goto((book / "index.html").as_uri())
    page.wait_for_url("**/chapters/index.html")
    page.context.close()
    assert trouble == []
