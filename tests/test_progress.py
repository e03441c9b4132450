"""A person at a notebook sees a bar; no stored notebook keeps one."""

import nbformat
import pytest
from nbclient import NotebookClient

TRAIN = """
from whyattention import progress
with progress.bar(3, "training") as bar:
    for _ in range(3):
        bar.update(1)
print("done")
"""


class Watching(NotebookClient):
    """Notes the text of every stream and every clearing that the kernel sends."""

    def __init__(self, notebook, person: bool):
        super().__init__(notebook)
        self.person, self.streams, self.clearings = person, [], 0

    async def async_start_new_kernel_client(self):
        client = await super().async_start_new_kernel_client()
        client.allow_stdin = self.person
        return client

    def output(self, outs, msg, display_id, cell_index):
        self.streams.append(msg["content"].get("text", ""))
        return super().output(outs, msg, display_id, cell_index)

    def clear_output(self, outs, msg, cell_index):
        self.clearings += 1
        return super().clear_output(outs, msg, cell_index)


@pytest.mark.parametrize("person", [True, False])
def test_the_bar_shows_to_a_person_and_leaves_no_trace(person):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(TRAIN)])
    client = Watching(notebook, person)
    client.execute()
    assert ("training" in "".join(client.streams)) == person == bool(client.clearings)
    assert [(output["output_type"], output.get("text")) for output in notebook.cells[0].outputs] == [
        ("stream", "done\n")
    ]


def test_outside_a_notebook_there_is_a_bar_only_on_a_terminal(capsys):
    from whyattention import progress

    with progress.bar(2, "training") as bar:
        bar.update(2)
    assert capsys.readouterr().err == ""
