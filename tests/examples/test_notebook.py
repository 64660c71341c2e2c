"""The notebook runs from its first cell to its last: `make examples`."""

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FILE = Path(__file__).parents[2] / "examples/notebook/first_model.ipynb"


@pytest.fixture(scope="module")
def written():
    return nbformat.read(FILE, as_version=4)


def test_it_is_stored_without_what_it_printed(written):
    cells = [cell for cell in written.cells if cell.cell_type == "code"]
    assert [cell.id for cell in cells if cell.outputs or cell.execution_count] == []
    assert len(cells) >= 8


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # those of Jupyter
def test_it_answers_draws_and_counts(written):
    done = NotebookClient(written, timeout=60, kernel_name="python3").execute(cwd=str(FILE.parent))
    outputs = [output for cell in done.cells for output in cell.get("outputs", ())]
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    sys.stdout.write(f"\n\n{said}")  # make examples shows it
    assert "the model sees a 3\n" in said
    assert "500 answers at once, 1 digit\n" in said
    assert "1001 inferences\n" in said
    assert sum("image/png" in output.get("data", ()) for output in outputs) == 3
