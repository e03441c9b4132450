"""Keep the built book off the network: a page must read offline, and where content delivery networks are blocked.

By itself a page of Jupyter Book 1 would load MathJax from one network and name another for Thebe, which runs code
cells on a Binder and which this book does not use. (Thebe's settings are even written twice, an error in every page's
console.)

MathJax 3.2.2 lies, unchanged, in the wheel of `django-static-mathjax`. The few files that its component `tex-chtml`
can ask for (2 MB of 24) are copied into the book's `_static/mathjax`, where `mathjax_path` in `_config.yml` expects
them. Nothing of MathJax is committed, and it adds one script tag: Sphinx looks for scripts in the source folders, not
in the output.
"""

import shutil
from importlib.metadata import distribution
from pathlib import Path

MATHJAX_FILES = (
    "LICENSE",
    "es5/tex-chtml.js",  # reads TeX, writes HTML, and MathML for screen readers
    "es5/input/tex/extensions",  # macros that MathJax loads when it first meets them, such as \cancel
    "es5/output/chtml/fonts/woff-v2",
)


def copy_mathjax(app, exception):
    """Copy MathJax into a finished HTML build.

    Raises:
        FileNotFoundError: the installed `django-static-mathjax` lacks one of `MATHJAX_FILES`.
    """
    if exception is not None or app.builder.format != "html":
        return
    source = Path(distribution("django-static-mathjax").locate_file("mathjax/static/mathjax"))
    target = Path(app.outdir) / "_static" / "mathjax"
    for name in MATHJAX_FILES:
        copy = target / name.removeprefix("es5/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, copy, dirs_exist_ok=True)
        else:
            shutil.copy(source / name, copy)


def drop_thebe(app, pagename, templatename, context, doctree):
    """Leave Thebe's scripts out of a page."""

    def is_thebe(script):
        return "thebe" in str(script.filename) or "thebe" in script.attributes.get("body", "")

    context["script_files"] = [script for script in context["script_files"] if not is_thebe(script)]


def setup(app):
    """Register the extension with Sphinx."""
    app.connect("html-page-context", drop_thebe, priority=900)  # after the extensions that add scripts to a page
    app.connect("build-finished", copy_mathjax)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
