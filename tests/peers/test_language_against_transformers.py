"""Language models from folders that transformers wrote: logits, texts, chances."""

import numpy as np
import pytest

import weft
from weft.language import Sampling, load
from weft.language.sampling import chances

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
    "max_position_embeddings": 64, "eos_token_id": 7,
}  # fmt: skip
GPT2 = {
    "vocab_size": 120, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64,
    "eos_token_id": 7,
}  # fmt: skip
HEADS = {"GPT2": "GPT2LMHeadModel"}
STRETCHED = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip
CASES = {
    "gpt2": ("GPT2", GPT2),
    "gpt2-untied": ("GPT2", GPT2 | {"tie_word_embeddings": False, "n_inner": 40}),
    "llama": ("Llama", SIZES | {"tie_word_embeddings": True}),
    "llama-biased": ("Llama", SIZES | {"attention_bias": True, "head_dim": 12}),
    "llama3": ("Llama", SIZES | {"rope_scaling": STRETCHED, "rope_theta": 5e5}),
    "linear": (
        "Llama", SIZES | {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    ),
    "mistral": ("Mistral", SIZES | {"sliding_window": None}),
    "qwen2": ("Qwen2", SIZES),
    "qwen3": ("Qwen3", SIZES | {"head_dim": 16}),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def models(request, tmp_path_factory):
    name, options = CASES[request.param]
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**options)
    theirs = (
        getattr(transformers, HEADS.get(name, f"{name}ForCausalLM"))(config)
        .double()
        .eval()
    )
    for p in theirs.parameters():  # biases too, which begin as zero
        torch.nn.init.normal_(p, 0.0, 0.2)
    folder = tmp_path_factory.mktemp("model")
    theirs.save_pretrained(folder)
    return theirs, folder, load(folder, dtype=weft.float64, chunk=8)


def test_logits(models):
    theirs, _, ours = models
    ids = np.random.default_rng(1).integers(0, 120, (2, 30))
    with torch.no_grad(), weft.no_grad():
        expected = theirs(torch.tensor(ids)).logits.numpy()
        found = ours.module(weft.tensor(ids)).numpy()
    # transformers turns by angles that it rounds to float32 before it takes cosines.
    near = 1e-9 if ours.config.rotation is None else 2e-6
    np.testing.assert_allclose(found, expected, rtol=near, atol=near)


@pytest.mark.parametrize("penalty", [1.0, 1.7])
def test_greedy_texts(models, penalty):
    theirs, _, ours = models
    prompt = [int(n) for n in np.random.default_rng(2).integers(8, 120, 21)]
    with torch.no_grad():
        out = theirs.generate(
            torch.tensor([prompt]), max_new_tokens=20, do_sample=False,
            repetition_penalty=penalty, pad_token_id=0,
        )  # fmt: skip
    expected = out[0, len(prompt) :].tolist()
    if 7 in expected:
        expected = expected[: expected.index(7)]
    found = ours.generate(prompt, max_new_tokens=20, repetition_penalty=penalty)
    assert found == expected


def test_files_go_back(models, tmp_path):
    theirs, _, ours = models
    ours.save(tmp_path / "again")
    again = type(theirs).from_pretrained(tmp_path / "again", dtype=torch.float64)
    ids = torch.arange(8, 20)[None]
    with torch.no_grad():
        assert torch.equal(again(ids).logits, theirs(ids).logits)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.7},
        {"temperature": 1.3, "top_k": 5},
        {"temperature": 1.0, "top_p": 0.8},
        {"temperature": 0.5, "top_k": 20, "top_p": 0.6, "repetition_penalty": 1.4},
    ],
)
def test_chances(options):
    logits = np.random.default_rng(0).normal(0, 2, 50)
    before = [3, 4, 4, 9]
    steps = [
        ("repetition_penalty", transformers.RepetitionPenaltyLogitsProcessor),
        ("temperature", transformers.TemperatureLogitsWarper),
        ("top_k", transformers.TopKLogitsWarper),
        ("top_p", transformers.TopPLogitsWarper),
    ]
    scores = torch.tensor(logits)[None]
    for name, kind in steps:
        if name in options:
            scores = kind(options[name])(torch.tensor([before]), scores)
    expected = scores.softmax(-1)[0].numpy()
    found = chances(logits, Sampling(**options), before)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
