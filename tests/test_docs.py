"""Every code block of the README and the docs runs, and so does every example."""

import importlib
import importlib.util
import linecache
import pathlib
import re
import types

import pytest

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
README, CHINESE = ROOT / "README.md", ROOT / "README.zh.md"
PAGES = sorted([README, *DOCS.glob("*.md")])


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def links(page):
    return [
        page.parent / target
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    ]


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_blocks_of_a_page_run_in_order(page, capsys):
    scope = {"__name__": page.stem}
    for k, block in enumerate(blocks(page)):
        name = f"{page.name} block {k}"  # kernels are read from their source
        linecache.cache[name] = (len(block), None, block.splitlines(True), name)
        exec(compile(block, name, "exec"), scope)


def test_pages_have_blocks():
    assert all(blocks(page) for page in PAGES)


@pytest.mark.parametrize("page", [*PAGES, CHINESE], ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in links(page):
        assert target.exists(), target


def test_the_index_leads_to_every_page():
    pages = {*DOCS.glob("*.md"), DOCS / "weft_from_scratch.py"}
    assert pages - {DOCS / "index.md"} <= set(links(DOCS / "index.md"))


# -- the README, in both languages


def test_the_chinese_readme_has_the_same_headings_and_code():
    levels, code = [], []
    for page in (README, CHINESE):
        text = page.read_text()
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        levels.append([len(level) for level in re.findall(r"^(#+) ", prose, re.M)])
        every = re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL)
        code.append([(kind, re.sub(r" *# .*", "", block)) for kind, block in every])
    assert levels[0] == levels[1]
    assert code[0] == code[1]
    assert len(code[0]) == 3


@pytest.mark.parametrize("page", [README, CHINESE], ids=lambda p: p.name)
def test_the_readme_says_what_was_measured(page, lines):
    measured = [row[1:] for row in lines.to_wait_for()[1:]]
    known = {(m, "", "") if n == "1" else (m, *ends) for n, m, *ends in measured}
    number = r"(\d+\.\d\d|)"
    rows = rf"^\| .* \| {number} \| ?{number} \| ?{number} \|$"
    shown = re.findall(rows, page.read_text(), re.M)
    assert len(shown) > 10
    assert set(shown) <= known
    ratios = [row.ratio for row in lines.MEASURED.rows if row.ratio is not None]
    behind = sum(ratio < 1 for ratio in ratios)
    said = r"In (\d+) of (\d+) rows" if page == README else r"(\d+) 行结果中有 (\d+) 行"
    numbers = re.search(said, page.read_text()).groups()
    assert sorted(map(int, numbers)) == [behind, len(ratios)]


@pytest.mark.parametrize("page", [README, CHINESE], ids=lambda p: p.name)
def test_the_readme_says_how_long_the_source_is(page, lines):
    for budget in lines.BUDGET.values():
        assert f"{budget:,}" in page.read_text()
    compiler = next(p for p in lines.packages() if p.name == "compile").own.code
    assert 0.4 < compiler / lines.sizes()["core"].code < 0.5  # "nearly half"


def test_the_picture_of_the_explain_page_is_small():
    picture = DOCS / "images" / "explain.png"
    assert f"]({picture.relative_to(ROOT)})" in README.read_text()
    assert picture.stat().st_size < 250_000


# -- the site that `make docs` builds: its own configuration, without the builder


@pytest.fixture(scope="module")
def site():
    return load(DOCS / "conf.py")


def test_the_site_has_every_page_in_its_contents(site):
    source = [(DOCS / "index.md").read_text()]
    site.order_pages(None, "index", source)
    listed = re.findall(r"```{toctree}\n(.*?)```", source[0], re.DOTALL)
    names = {line for text in listed for line in text.split("\n\n")[1].split()}
    assert {p.stem for p in DOCS.glob("*.md")} - {"index"} <= names
    assert "reference/weft.nn" in names


def test_the_reference_has_every_public_function_and_class(site):
    pages = {n: site.reference(n, set()) for n in site.NAMESPACES if n != "weft.Tensor"}
    for name, page in pages.items():
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", []):
            value = getattr(module, public)
            if isinstance(value, (type, types.FunctionType)) and value.__doc__:
                assert re.search(rf"\b{public}\b", page), f"{name}.{public}"
    assert ".. autofunction:: weft.sinh\n" in pages["weft"]
    assert "``arccos`` (``acos``)" in pages["weft"]


def test_formulas_in_docstrings_become_blocks(site):
    text = "Adam.\n\n    m <- g\n\n    p <- m\n\n>>> f()\n1\n\nLike this::\n\n    x\n"
    made = "\n".join(site.literal_blocks(text.split("\n")))
    assert made == text.replace("Adam.\n\n", "Adam.\n\n::\n\n")


# -- examples


def test_spirals_are_learnt(capsys):
    score = load(ROOT / "examples" / "spirals.py").main(["--steps", "150"])
    assert score > 0.95
    assert "gradient agrees with differences: True" in capsys.readouterr().out


# A short run of each example, and the least or most that its score may be.
SHORT_RUNS = [
    ("layers_by_hand.py", "", lambda loss_ratio: loss_ratio < 0.3),
    (
        "house_prices.py",
        "--epochs 20",
        lambda r2: 0.7 < r2[0] < r2[1] - 0.02,
    ),
    ("mlp_resnet.py", "--epochs 3 --width 48 --blocks 1", lambda worst: worst > 0.7),
    (
        "char_gpt.py",
        "--characters 50000 --steps 60 --context 32 --width 32 --heads 2 --layers 1 "
        "--rate 1e-2 --sample 20",
        lambda loss: 1.0 < loss < 3.6,  # frequencies alone cost 3.8
    ),
    (
        "char_lstm.py",
        "--characters 50000 --steps 60 --length 16 --width 48 --sample 20",
        lambda loss: 1.0 < loss < 3.6,
    ),
    ("variable_length.py", "--epochs 2 --count 1000", lambda right: right > 0.8),
    (
        "digits_cnn.py",
        "--epochs 2 --width 4 --batch 48",
        lambda right: right > 0.8,
    ),
    (
        "multi_task.py",
        "--epochs 6",
        lambda scores: scores[0] > 0.8 and scores[1] < 6,  # untold, angles are 20° off
    ),
    ("fine_tune.py", "--few 5", lambda right: right[0] > max(0.7, right[1] + 0.1)),
    ("custom_layer.py", "--steps 100", lambda loss: loss < 0.005),
    (
        "policy_gradient.py",
        "--updates 16 --carts 12 --limit 100",
        lambda steps: steps[1] > 1.3 * steps[0],
    ),
    (
        "small_llama.py",
        "--characters 50000 --steps 60 --context 32 --width 32 --layers 1 --rate 1e-2 "
        "--sample 8",
        lambda losses: losses[0] < 3.6 and abs(losses[1] - losses[0]) < 0.02,
    ),
    ("data_parallel.py", "--epochs 2", lambda right: right > 0.8),
    ("recommend.py", "--steps 150", lambda error: error < 0.3),
    ("gan.py", "--steps 250 --width 48", lambda apart: apart[1] < apart[0] / 2),
]


@pytest.mark.parametrize(
    ("name", "options", "good"), SHORT_RUNS, ids=[row[0] for row in SHORT_RUNS]
)
def test_example_learns_in_a_short_run(name, options, good, capsys):
    score = load(ROOT / "examples" / name).main(options.split())
    assert good(score), score
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("char_gpt.py", "--context 16 --heads 2 --layers 1 --rate 1e-2"),
        ("char_lstm.py", "--length 8"),
    ],
    ids=["gpt", "lstm"],
)
def test_a_text_of_ones_own_is_learnt_by_heart(name, options, tmp_path, capsys):
    text = tmp_path / "text.txt"
    text.write_text("a stitch in time saves nine. " * 200)
    options = f"--text {text} --steps 160 --width 32 --sample 60 {options}"
    loss = load(ROOT / "examples" / name).main(options.split())
    assert loss < 0.3
    assert "saves nine." in capsys.readouterr().out


def test_every_example_has_a_test():
    here = pathlib.Path(__file__).read_text()
    for path in (ROOT / "examples").glob("*.py"):
        assert f'"{path.name}"' in here
