import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.cleaning.notebooks import convert_notebook

PYTHON = {"kernelspec": {"language": "python", "name": "python3"}, "language_info": {"name": "python"}}


def code(source, **more):
    return {"cell_type": "code", "metadata": {}, "execution_count": 1, "outputs": [], "source": source, **more}


def markdown(source, **more):
    return {"cell_type": "markdown", "metadata": {}, "source": source, **more}


def notebook(*cells, metadata=PYTHON):
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1).encode()


def test_cells_become_the_percent_format():
    text = convert_notebook(notebook(markdown("# Title\n\nwords"), code("import os\n\nprint(1)"), code("x = 'é'\n")))
    assert text.decode() == ("# %% [markdown]\n# # Title\n#\n# words\n\n# %%\nimport os\n\nprint(1)\n\n# %%\nx = 'é'\n")


def test_source_may_be_a_list_of_lines():
    assert convert_notebook(notebook(code(["a = 1\n", "b = 2"]), markdown(["one\n", "two"]))) == convert_notebook(
        notebook(code("a = 1\nb = 2"), markdown("one\ntwo"))
    )


def test_outputs_attachments_and_raw_cells_are_left_out():
    image = {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo" * 100}, "metadata": {}}
    text = convert_notebook(
        notebook(
            {"cell_type": "raw", "metadata": {}, "source": "raw words"},
            code("plot()", outputs=[image, {"output_type": "stream", "text": ["printed"]}]),
            markdown("![i](attachment:a.png)", attachments={"a.png": {"image/png": "iVBORw0KGgo"}}),
            {"cell_type": "of the future", "source": "what"},
        )
    )
    assert text == b"# %%\nplot()\n\n# %% [markdown]\n# ![i](attachment:a.png)\n"


def test_magics_are_not_changed():
    assert convert_notebook(notebook(code("%matplotlib inline\n!ls"))) == b"# %%\n%matplotlib inline\n!ls\n"


@pytest.mark.parametrize(
    "cells", [[], [code("")], [code([]), markdown(" \n")], [{"cell_type": "raw", "source": "x"}], [{}]]
)
def test_notebook_without_code_and_markdown_gives_empty_text(cells):
    assert convert_notebook(notebook(*cells)) == b""


@pytest.mark.parametrize(
    ("metadata", "prefix"),
    [
        ({"kernelspec": {"language": "javascript"}}, "//"),
        ({"kernelspec": {"language": "C++17", "name": "xcpp17"}}, "//"),
        ({"kernelspec": {"name": "rust"}, "language_info": {"name": "Rust"}}, "//"),
        ({"language_info": {"name": "scala"}}, "//"),
        ({"kernelspec": {"language": "C#"}}, "//"),
        ({"kernelspec": {"language": "R"}}, "#"),
        ({"kernelspec": {"language": "julia"}}, "#"),
        ({"kernelspec": None}, "#"),
        ({"kernelspec": {"language": 5}}, "#"),
        ({}, "#"),
        (None, "#"),
        ([1], "#"),
    ],
)
def test_comment_prefix_matches_the_kernel_language(metadata, prefix):
    text = convert_notebook(notebook(markdown("words"), code("x"), metadata=metadata))
    assert text.decode() == f"{prefix} %% [markdown]\n{prefix} words\n\n{prefix} %%\nx\n"


def test_every_line_of_markdown_is_a_comment():
    text = convert_notebook(notebook(markdown("a\r\nb\rc\n\n\nd  \n")))
    assert text == b"# %% [markdown]\n# a\n# b\n# c\n#\n#\n# d\n"


def test_nbformat_3_worksheets_are_read():
    cells = [
        {"cell_type": "heading", "level": 2, "metadata": {}, "source": ["Title"]},
        {"cell_type": "markdown", "metadata": {}, "source": "words"},
        {"cell_type": "code", "input": ["x = 1\n", "y = 2"], "language": "python", "outputs": [], "collapsed": False},
    ]
    old = {
        "metadata": {"name": ""},
        "nbformat": 3,
        "nbformat_minor": 0,
        "worksheets": [{"cells": cells}, {"cells": []}],
    }
    text = convert_notebook(json.dumps(old).encode())
    assert text == b"# %% [markdown]\n# ## Title\n\n# %% [markdown]\n# words\n\n# %%\nx = 1\ny = 2\n"
    cells[2]["language"] = "javascript"
    assert convert_notebook(json.dumps(old).encode()).startswith(b"// %% [markdown]\n// ## Title")


@pytest.mark.parametrize(
    ("text", "defect"),
    [
        (b"", "not JSON (ends at byte 0)"),
        (b'{"cells": [', "not JSON (ends at byte 11)"),
        (b'{"cells": [x]}', "not JSON (byte 11)"),
        (b'{"cells": []} x', "not JSON (byte 15)"),
        (b"{}", "has no cells"),
        (b'{"cells": null}', "has no cells"),
        (b"[]", "notebook: expected object, got array"),
        (b'"text"', "notebook: expected object, got str"),
        (b'{"cells": 5}', "cells: expected array | null, got int"),
        (b'{"cells": [5]}', "cells[0]: expected object, got int"),
        (b'{"cells": [{"cell_type": "code", "source": {}}]}', "cells[0].source: expected str | array, got object"),
        (b'{"cells": [{"source": [1]}]}', "cells[0].source[0]: expected str, got int"),
        (b'{"worksheets": [{"cells": "x"}]}', "worksheets[0].cells: expected array, got str"),
        (b'{"cells": [{"cell_type": "code", "source": "\\u0000"}]}', "contains NUL characters"),
        (b'{"cells": [{"cell_type": "code", "source": "\xff"}]}', "not UTF-8"),
        (b'{"cells": [], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"cells": ' + b'[{"source": ' * 100_000, "cells[0].source[0]: expected str, got object"),
    ],
)
@pytest.mark.timeout(20)
def test_invalid_notebook_gives_a_description(text, defect):
    assert convert_notebook(text) == defect


def test_huge_numbers_in_skipped_fields_are_ignored():
    text = b'{"nbformat": 1e999, "x": ' + b"9" * 10_000 + b', "cells": [{"cell_type": "code", "source": "x"}]}'
    assert convert_notebook(text) == b"# %%\nx\n"


@pytest.mark.parametrize(
    ("escaped", "expected"),
    [
        (r"\ud83d\ude00", "😀"),
        (r"\ud800", "\ufffd"),
        (r"\udc00", "\ufffd"),
        (r"a\uD800b", "a\ufffdb"),
        (r"\ud800\ud83d\ude00", "\ufffd😀"),
        (r"\\ud800", r"\ud800"),
        (r"\\\ud800", "\\\ufffd"),
        (r"\ud800\n", "\ufffd"),
    ],
)
def test_lone_surrogate_becomes_the_replacement_character(escaped, expected):
    text = convert_notebook(b'{"cells": [{"cell_type": "code", "source": "%s"}]}' % escaped.encode())
    assert text.decode() == f"# %%\n{expected}\n"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
sources = st.text(st.characters()) | st.lists(st.text(st.characters()), max_size=3) | values
cell_types = st.sampled_from(["code", "markdown", "raw", "heading"]) | values
any_cells = st.fixed_dictionaries(
    {}, optional={"cell_type": cell_types, "source": sources, "input": sources, "level": values}
)
any_lists = st.lists(any_cells | values, max_size=4) | values
any_notebooks = st.fixed_dictionaries(
    {},
    optional={
        "cells": any_lists,
        "worksheets": st.lists(st.fixed_dictionaries({"cells": any_lists})),
        "metadata": values,
    },
)


@given(any_notebooks, st.booleans())
def test_any_notebook_gives_text_or_a_description(tree, ascii_only):
    text = convert_notebook(json.dumps(tree, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass"))
    assert isinstance(text, str) or text.decode("utf-8") is not None


@given(st.binary())
def test_any_bytes_give_text_or_a_description(raw):
    assert isinstance(convert_notebook(raw), bytes | str)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=5))
def test_code_is_not_changed(sources):
    text = convert_notebook(notebook(*map(code, sources)))
    bodies = [source.strip("\n") for source in sources if source.strip()]
    assert text.decode() == "\n".join(f"# %%\n{body}\n" for body in bodies)
