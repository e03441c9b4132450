"""The ledger as a page, from where its parts are kept: `whyattention.claims`, references.bib and the stored notebooks.

    {ledger} SECTION      the claims of one section of the article, in its order
    {claims}`VERDICT`     the claims that got a verdict, as links

Nothing of a claim is written on the page itself. What was measured is the text that the chapter's notebook stores, with
a link to the cell that shows it; to be linked to, each such cell gets an id. A claim that names no known figure or
source, and a link that leads nowhere, fail a strict build.
"""

from pathlib import Path
from typing import get_args

from docutils import nodes
from pybtex.database import parse_file
from sphinx import addnodes
from sphinx.util.docutils import SphinxDirective, SphinxRole

from whyattention.claims import LEDGER, NOTHING, Claim, Verdict, read_measured


def notebooks(chapters: Path) -> dict[int, Path]:
    """The numbered notebooks of a folder by their numbers."""
    return {int(path.name[:2]): path for path in sorted(chapters.glob("[0-9][0-9]_*.ipynb"))}


def cell_id(figure: str) -> str:
    """The id of the cell that shows a figure."""
    return nodes.make_id(f"measured {figure}")


def source_address(bibliography: Path, key: str) -> str:
    """Where the source can be read. Raises KeyError for a key that is not there, or a record that says no place."""
    fields = parse_file(bibliography).entries[key].fields
    if "url" in fields:
        return fields["url"]
    return f"https://arxiv.org/abs/{fields['eprint']}" if "eprint" in fields else f"https://doi.org/{fields['doi']}"


class LedgerDirective(SphinxDirective):
    """The claims of one section of the article, each as a block with a heading and a list of what belongs to it."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self):
        claims = [claim for claim in LEDGER if claim.section == self.arguments[0]]
        if not claims:
            raise self.error(f"the ledger has no claim for the section {self.arguments[0]!r}")
        self.paths = notebooks(Path(self.env.srcdir) / "chapters")
        self.bibliography = Path(self.env.srcdir) / "references.bib"
        for path in (*self.paths.values(), self.bibliography):
            self.env.note_dependency(str(path))
        return [self.block(claim) for claim in claims]

    def block(self, claim: Claim) -> nodes.Node:
        block = nodes.container(classes=["claim"], names=[f"claim-{claim.number}"])
        self.state.document.note_explicit_target(block, block)
        title = nodes.paragraph("", "", nodes.strong(text=f"Claim {claim.number}. "), *self.inline(claim.article))
        title["classes"].append("claim-title")
        words = nodes.inline("", f"「{claim.quote}」", classes=["claim-words"])
        words["lang"] = "zh"
        items = {
            "In the article": [nodes.paragraph("", "", words)],
            "The source": [nodes.paragraph("", "", *self.inline(claim.says)), self.where(claim)],
            "Measured here": [self.figures(claim), self.chapter(claim)],
            "Verdict": [nodes.paragraph("", "", nodes.strong(text=claim.verdict))],
        }
        block += [title, _definitions(items)]
        block["classes"].append("verdict-" + nodes.make_id(claim.verdict))
        return block

    def inline(self, text: str) -> list[nodes.Node]:
        children, messages = self.state.inline_text(text, self.lineno)
        return [*children, *messages]

    def where(self, claim: Claim) -> nodes.Node:
        try:
            address = source_address(self.bibliography, claim.source)
        except KeyError as missing:
            raise self.error(f"claim {claim.number}: references.bib has no {missing} for {claim.source!r}") from None
        return nodes.paragraph("", "", nodes.reference("", claim.where, refuri=address, internal=False))

    def figures(self, claim: Claim) -> nodes.Node:
        if not claim.figures:
            return nodes.paragraph(text=NOTHING)
        stored = read_measured(self.paths[claim.chapter])
        found = nodes.bullet_list(support_smartquotes=False)  # what is quoted is quoted as it stands
        for name in claim.figures:
            if name not in stored:
                raise self.error(f"claim {claim.number}: {self.paths[claim.chapter].name} does not measure {name!r}")
            link = _link("ref", cell_id(name), nodes.inline("", stored[name].text))
            found += nodes.list_item("", nodes.paragraph("", "", link))
        return found

    def chapter(self, claim: Claim) -> nodes.Node:
        document = f"/chapters/{self.paths[claim.chapter].stem}"
        title = _link("doc", document, nodes.inline("", document), explicit=False)
        return nodes.paragraph("", "", nodes.Text(f"Chapter {claim.chapter}, "), title)


class ClaimsRole(SphinxRole):
    """How many claims got a verdict, with links to them."""

    def run(self):
        if self.text not in get_args(Verdict):
            return [], [self.inliner.reporter.error(f"no verdict is called {self.text!r}", line=self.lineno)]
        claims = [claim for claim in LEDGER if claim.verdict == self.text]
        shown = [nodes.Text(f"{len(claims)} claims: " if len(claims) != 1 else "1 claim: ")]
        for place, claim in enumerate(claims):
            link = _link("ref", f"claim-{claim.number}", nodes.inline("", str(claim.number)))
            shown += [nodes.Text(", " if place else ""), link]
        return shown, []


def _definitions(items: dict[str, list[nodes.Node]]) -> nodes.Node:
    return nodes.definition_list(
        "",
        *(
            nodes.definition_list_item("", nodes.term(text=term), nodes.definition("", *content))
            for term, content in items.items()
        ),
    )


def _link(kind: str, target: str, shown: nodes.Node, *, explicit: bool = True) -> nodes.Node:
    """A reference inside the book, which Sphinx resolves once it has read every page, or warns of."""
    options = {"refdomain": "std", "reftype": kind, "reftarget": target, "refexplicit": explicit, "refwarn": True}
    return addnodes.pending_xref("", shown, **options)


def name_measured_cells(app, doctree):
    """Give the cells of a notebook that show a measured figure an id for each, which other pages can link to."""
    path = Path(app.env.doc2path(app.env.docname))
    if path.suffix != ".ipynb":
        return
    standard = app.env.get_domain("std")
    cells = {cell["cell_index"]: cell for cell in doctree.findall(_is_code_cell)}
    for name, figure in read_measured(path).items():
        cells[figure.cell]["ids"].append(cell_id(name))
        standard.anonlabels[cell_id(name)] = app.env.docname, cell_id(name)


def _is_code_cell(node) -> bool:
    return isinstance(node, nodes.container) and node.get("nb_element") == "cell_code"


def setup(app):
    """Register the extension with Sphinx."""
    app.add_directive("ledger", LedgerDirective)
    app.add_role("claims", ClaimsRole())
    app.connect("doctree-read", name_measured_cells)
    return {"version": "1.0", "parallel_read_safe": True, "parallel_write_safe": True}
