"""The command line, run as a user would, in short form."""

import pytest

import weft
from weft.cli.main import main

CONFIG = """
seed = 1
epochs = {epochs}
folder = "{folder}"

[model]
name = "MLP"
sizes = [64, 32, 10]

[data]
name = "Digits"
batch_size = 64

[optimizer]
name = "Adam"
lr = 5e-3

[scheduler]
name = "CosineAnnealingLR"
T_max = 230
"""


def write(tmp_path, epochs=10, text=CONFIG):
    path = tmp_path / "digits.toml"
    path.write_text(text.format(epochs=epochs, folder=tmp_path / "run"))
    return str(path)


def test_info(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert f"weft         {weft.__version__}" in out
    assert "threads" in out
    assert "(by " in out
    assert all(f"\n{row} " in out for row in ("python", "devices", "memory", "kernels"))


def test_info_says_which_number_of_threads_is_set(capsys):
    limit = weft.runtime.cpu.threads.thread_limit().threads
    weft.set_num_threads(limit + 1)
    try:
        assert main(["info"]) == 0
        assert (
            f"\nthreads      {limit + 1} (set; {limit} (by " in capsys.readouterr().out
        )
    finally:
        weft.set_num_threads(limit)


def test_cache_info_and_clear(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("WEFT_CACHE_SIZE", "7")
    weft.runtime.cpu.kernel_cache.get("key", lambda: b"code")
    assert main(["cache", "info"]) == 0
    out = capsys.readouterr().out
    assert f"folder       {tmp_path / 'kernels'}\nstate        on disk\n" in out
    assert "kernels      1\nsize         0.0 MiB of at most 7 MiB" in out
    assert main(["cache", "clear"]) == 0
    assert "removed 1 kernels" in capsys.readouterr().out
    assert not list((tmp_path / "kernels").iterdir())
    assert main(["cache", "clear"]) == 0
    assert "removed 0 kernels" in capsys.readouterr().out


def test_a_wrong_cache_size_is_an_error(capsys, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_SIZE", "much")
    assert main(["cache", "info"]) == 1
    assert "WEFT_CACHE_SIZE: expected a number of MiB, got 'much'" in (
        capsys.readouterr().err
    )


def test_demo_trains_saves_and_writes(tmp_path, capsys):
    folder = tmp_path / "demo"
    short = ["demo", "--minutes", "0.01", "--characters", "20", "--folder", str(folder)]
    assert main(short) == 0
    out = capsys.readouterr().out
    assert "what it writes:\n\ndef " in out
    assert (folder / "checkpoint.safetensors").exists()
    assert (folder / "curve.svg").read_text().startswith("<svg")
    assert main([*short, "--resume"]) == 0


def test_train_from_a_file_and_resume(tmp_path, capsys):
    assert main(["train", write(tmp_path)]) == 0
    assert "accuracy 0.9" in capsys.readouterr().out
    assert (tmp_path / "run" / "curve.svg").exists()
    assert main(["train", write(tmp_path, epochs=11), "--resume"]) == 0
    assert "resumed at step 230" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("MLP", "Perceptron"), "[model] name = 'Perceptron' is unknown; known are"),
        (('"Adam"', '"Eve"'), "[optimizer] name = 'Eve' is unknown"),
        (("sizes", "shape"), "[model]:"),
        (("seed", "sead"), "unknown entries ['sead']"),
        (("[data]", "[date]"), "missing sections ['data']"),
        (("seed = 1", "seed = = 1"), "digits.toml"),
    ],
)
def test_mistakes_in_a_file(tmp_path, capsys, change, message):
    assert main(["train", write(tmp_path, text=CONFIG.replace(*change))]) == 1
    assert message in capsys.readouterr().err


def test_a_missing_file(capsys):
    assert main(["train", "nowhere.toml"]) == 1
    assert "nowhere.toml" in capsys.readouterr().err


def test_help_names_the_commands(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(name in out for name in ("demo", "train", "info", "cache"))
