"""A small dataset with hostile file names, near-duplicates, a secret and two languages."""

from pathlib import Path

from gristmill import Config, WindowConfig, build
from support.source_trees import write_tree

PICTURE = "<img src=x onerror=alert(1)>"
TEMPLATE = "%{x}<extra>"
BOLD = "<b>bold<"
FOLDERS = (PICTURE, TEMPLATE, BOLD)
BIDI_NAME = "a\u202eb.py"
AWS_KEY = "AKIAQYLPMN5HNM4OZ2XQ"


def python_text(name: str, count: int = 24) -> str:
    parts = (
        f"def {name}_{number}(value, other):\n"
        f'    """Adds {number} of {name} to what it is given."""\n'
        f"    total = value * {number} + other\n"
        f"    for step in range({number}, total):\n"
        f"        total += {name}_{number}(step, {number * 7})\n"
        f"    return total - {number * 13}\n"
        for number in range(count)
    )
    return "\n\n".join(parts)


def c_text(name: str) -> str:
    return "#include <stdio.h>\n" + "\n".join(
        f'int {name}_{number}(int value) {{ printf("{name} %d\\n", value); return value * {number} + {number * 3}; }}'
        for number in range(30)
    )


def write_sources(root: Path) -> Path:
    near_duplicate = python_text("twin").replace("value * 3 +", "value * 4 -")
    return write_tree(
        root,
        {
            f"{PICTURE}/{PICTURE}.py": python_text("picture"),
            f"{PICTURE}/inner.py": python_text("inner"),
            f"{TEMPLATE}/{TEMPLATE}.py": python_text("template"),
            f"{BOLD}/b>&amp;.py": python_text("bold"),
            "</script>.py": python_text("script"),
            BIDI_NAME: "",
            "twins/first.py": python_text("twin"),
            "twins/second <script>alert(1)</script>.py".replace("</", "<"): near_duplicate,
            "native/code.c": c_text("native"),
            "native/more.c": c_text("more"),
            "key.py": f'KEY = "{AWS_KEY}"\n' + python_text("key"),
            "native/bytes.c": b"\x00\x01\x02\xff",
            f"{PICTURE}/empty.py": "",
        },
    )


def build_hostile(folder: Path, **settings: object) -> Path:
    sources = write_sources(folder / "sources")
    window = WindowConfig(length=128, overlap=32)
    config = Config(sources=[str(sources)], out=str(folder / "dataset"), window=window, **settings)
    build(config)
    return folder / "dataset"
