"""Language models from folders: what is read, and what is refused."""

import json

import numpy as np
import pytest

import weft
from weft.errors import ArgumentError, FileFormatError
from weft.language import Config, Decoder, LanguageModel, config_of, load
from weft.language.tokenizer import Text, Tokenizer

GPT2 = {
    "model_type": "gpt2", "vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2,
    "n_positions": 32, "eos_token_id": 5,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "vocab_size": 40, "hidden_size": 16, "hidden_act": "silu",
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 32, "eos_token_id": [5, 6],
}  # fmt: skip


@pytest.fixture(params=[GPT2, LLAMA], ids=["gpt2", "llama"])
def folder(request, tmp_path):
    config = config_of(request.param)
    weft.manual_seed(0)
    LanguageModel(Decoder(config), compiled=False).save(tmp_path)
    return tmp_path


def test_what_is_saved_is_what_is_read(folder):
    model = load(folder, compiled=False)
    model.save(folder / "again")
    again = load(folder / "again", compiled=False)
    assert again.config == model.config
    ids = weft.arange(12)[None]
    assert weft.equal(again.module(ids), model.module(ids))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "layer"}, "norm='layer'"),
        ({"kind": "gpt2"}, "rotation=Rotation"),
        ({"kind": "bert"}, "known are gpt2, llama"),
        ({"head_norm": True}, "head_norm=True"),
        ({"query_bias": True}, "output_bias=False"),
        ({"rotation": None}, "rotation=None"),
    ],
)
def test_configs_that_no_file_can_say(options, message, tmp_path):
    sizes = {"vocab": 9, "context": 8, "width": 8, "layers": 1, "heads": 2}
    net = Decoder(Config(**sizes, **options))
    with pytest.raises(ArgumentError, match=message):
        LanguageModel(net, compiled=False).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def change(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_folder_is_the_network(folder):
    weft.manual_seed(0)
    config = config_of(json.loads((folder / "config.json").read_text()))
    net = Decoder(config).eval()
    ids = weft.arange(20).reshape(2, 10)
    loaded = load(folder, compiled=False)
    assert weft.equal(loaded.module(ids), net(ids))
    assert loaded.config == config
    half = load(folder, dtype=weft.bfloat16, compiled=False)
    assert half.module.norm.weight.dtype is weft.bfloat16
    with weft.no_grad():
        near, exact = half.module(ids).float().numpy(), net(ids).numpy()
    np.testing.assert_allclose(near, exact, atol=0.03 * np.abs(exact).max())
    assert half.engine.needs["page"] * 2 == loaded.engine.needs["page"]


def test_names_without_a_prefix_and_old_tables(folder):
    tensors = weft.load(folder)
    bare = {
        n.removeprefix("transformer.").removeprefix("model."): t
        for n, t in tensors.items()
    }
    bare["h.0.attn.bias"] = weft.ones(1, 1, 4, 4)
    bare["layers.0.self_attn.rotary_emb.inv_freq"] = weft.ones(2)
    expected = load(folder, compiled=False).module(weft.arange(9)[None])
    weft.save(bare, folder / "model.safetensors")
    assert weft.equal(
        load(folder, compiled=False).module(weft.arange(9)[None]), expected
    )


def test_more_ends(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": [9, 5]}')
    ends = load(folder, compiled=False).config.ends
    assert set(ends) >= {5, 9}
    assert len(set(ends)) == len(ends)


def test_weights_that_config_json_does_not_describe(folder):
    layers = (
        "n_layer"
        if (folder / "config.json").read_text().count("gpt2")
        else ("num_hidden_layers")
    )
    change(folder, **{layers: 3})
    with pytest.raises(FileFormatError, match=r"missing \['layers.2"):
        load(folder)
    change(folder, **{layers: 1})
    with pytest.raises(FileFormatError, match=r"unknown \['layers.1"):
        load(folder)
    change(folder, **{layers: 2, "vocab_size": 41})
    with pytest.raises(FileFormatError, match=r"embed_tokens\.weight has shape"):
        load(folder)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "bert"}, "model_type is 'bert'; known are gpt2, llama"),
        ({"hidden_size": "16"}, "hidden_size must be an integer, got '16'"),
        ({"hidden_size": True}, "hidden_size must be an integer"),
        ({"hidden_size": 0}, "hidden_size must be from 1"),
        ({"vocab_size": 1 << 40}, "vocab_size must be from 1 to"),
        ({"num_key_value_heads": 3}, "4 heads cannot share 3 key heads"),
        ({"hidden_act": "tanh"}, "hidden_act must be one of swish"),
        ({"rms_norm_eps": -1}, "rms_norm_eps must be positive"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 2}}, "the type is 'yarn'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor must be a number"),
        ({"rope_scaling": [1]}, "must be an object"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings must be true or false"),
        ({"head_dim": 3}, "heads of an even size, not 3"),
        ({"eos_token_id": "x"}, "eos_token_id must be token numbers"),
    ],
)
def test_configs_that_are_refused(values, message):
    with pytest.raises(FileFormatError, match=message):
        config_of(LLAMA | values)


def test_windows_are_refused_where_they_are_used():
    windowed = LLAMA | {"sliding_window": 16}
    assert config_of(windowed | {"model_type": "qwen2"}).kind == "qwen2"
    with pytest.raises(FileFormatError, match="windows of attention"):
        config_of(windowed | {"model_type": "mistral"})


@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 100_000])
def test_a_config_that_is_no_object(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(FileFormatError, match=r"config\.json"):
        load(folder)


def test_a_folder_without_files(tmp_path):
    with pytest.raises(FileFormatError, match=r"has no config.json; expected a folder"):
        load(tmp_path)


# -- texts


class Bytes:
    """A tokenizer whose tokens are the bytes of UTF-8."""

    encode = staticmethod(lambda text: list(text.encode()))
    decode = staticmethod(lambda tokens: bytes(tokens).decode(errors="replace"))


@pytest.mark.parametrize("text", ["plain", "naïve café ✓ 🎉!", "x" * 200 + "é" * 90])
def test_pieces_are_whole_characters_and_make_the_text(text):
    growing = Text(Bytes())
    pieces = [growing.add(token) for token in text.encode()]
    assert all("\ufffd" not in piece for piece in pieces)
    assert "".join(pieces) + growing.end() == text


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one\n\ntwo", ("\n\n",), "one"),
        ("aab", ("ab",), "a"),
        ("abc", ("abd",), "abc"),
        ("a<en", ("<end>",), "a<en"),
        ("x<end>y", ("<end>", "nothing"), "x"),
        ("ends.", (".",), "ends"),
    ],
)
def test_texts_end_before_what_stops_them(text, stop, expected):
    growing, found = Text(Bytes(), stop), ""
    for token in text.encode():
        found += growing.add(token)
        if growing.stopped:
            break
    assert found + growing.end() == expected


def test_a_tokenizer_beside_the_weights(folder):
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=40, initial_alphabet=list("abcdefghij "), show_progress=False
    )
    made.train_from_iterator(["abc def ghij " * 9], trainer)
    made.save(str(folder / "tokenizer.json"))
    model = load(folder, compiled=False)
    ids = model.tokenizer.encode("abc def")
    tokens = model.generate(ids, max_new_tokens=12, ignore_ends=True)
    text = model.generate("abc def", max_new_tokens=12, ignore_ends=True)
    assert text == model.tokenizer.decode(tokens)
    assert "".join(model.stream("abc def", max_new_tokens=12, ignore_ends=True)) == text
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(FileFormatError, match="is no tokenizer"):
        load(folder)


def test_texts_without_the_library(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(ArgumentError, match=r"pip install 'weft\[language\]'"):
        Tokenizer(str(folder / "config.json"))


def test_configs_refuse_sizes_that_cannot_be():
    with pytest.raises(ArgumentError, match="layers must be positive, got 0"):
        Config(vocab=1, context=1, width=1, layers=0, heads=1)


@pytest.mark.parametrize(("weights", "near"), [("int8", 0.02), ("int4", 0.25)])
def test_quantised_weights(tmp_path, weights, near):
    described = LLAMA | {"hidden_size": 64, "intermediate_size": 128}
    weft.manual_seed(0)
    exact = LanguageModel(Decoder(config_of(described)), compiled=False)
    exact.save(tmp_path)
    model = load(tmp_path, weights=weights)
    assert model.engine.needs["weights"] < 0.4 * exact.engine.needs["weights"]
    ids = weft.arange(30)[None]
    with weft.no_grad():
        found, expected = model.module(ids).numpy(), exact.module(ids).numpy()
    assert np.abs(found - expected).max() < near * np.abs(expected).max()
    assert np.abs(found - expected).max() > 0
    assert len(model.generate([1, 2, 3], max_new_tokens=5, ignore_ends=True)) == 5
