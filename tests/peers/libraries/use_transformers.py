"""transformers: models of small random configurations."""

import tempfile

import torch
from common import case, fill, integers, main, normal, train
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}


def gpt2():
    config = GPT2Config(
        vocab_size=50, n_positions=32, n_embd=24, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=1, pad_token_id=1, **NO_DROPOUT,
    )  # fmt: skip
    return fill(GPT2LMHeadModel(config))


def bert_config(**options):
    return BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, **options,
    )  # fmt: skip


def llama():
    config = LlamaConfig(
        vocab_size=50, hidden_size=24, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
        bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    return fill(LlamaForCausalLM(config))


def t5():
    config = T5Config(
        vocab_size=50, d_model=24, d_kv=8, d_ff=32, num_layers=2, num_heads=3,
        dropout_rate=0.0, decoder_start_token_id=0,
    )  # fmt: skip
    return fill(T5ForConditionalGeneration(config))


def vit():
    config = ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=16,
        intermediate_size=32, patch_size=4, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, num_labels=5,
    )  # fmt: skip
    return fill(ViTForImageClassification(config))


def whisper():
    config = WhisperConfig(
        vocab_size=50, num_mel_bins=8, d_model=24, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32,
        decoder_ffn_dim=32, max_source_positions=16, max_target_positions=20,
        decoder_start_token_id=2, bos_token_id=0, eos_token_id=1, pad_token_id=1,
        dropout=0.0, suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    return fill(WhisperForConditionalGeneration(config))


def trained(model, **inputs):
    model.train()
    out = train(model, lambda m: m(**inputs).loss)
    model.eval()
    with torch.no_grad():
        out["logits"] = model(**inputs).logits
    return out


@case
def gpt2_trains():
    ids = integers(50, 2, 10)
    return trained(gpt2(), input_ids=ids, labels=ids)


@case
def gpt2_generates():
    model = gpt2().eval()
    ids = integers(50, 2, 4, seed=1)
    return {
        "greedy": model.generate(ids, max_new_tokens=8, do_sample=False),
        "beams": model.generate(ids, max_new_tokens=8, num_beams=3, do_sample=False),
        "without cache": model.generate(ids, max_new_tokens=8, use_cache=False),
        "penalty": model.generate(ids, max_new_tokens=8, repetition_penalty=1.3),
        "no repeats": model.generate(ids, max_new_tokens=8, no_repeat_ngram_size=2),
        "scores": list(
            model.generate(
                ids, max_new_tokens=4, output_scores=True, return_dict_in_generate=True
            ).scores
        ),
    }


@case
def gpt2_samples():
    torch.manual_seed(0)
    ids = gpt2().eval().generate(
        integers(50, 2, 4), max_new_tokens=8, do_sample=True, top_k=5, top_p=0.9,
        temperature=0.7,
    )  # fmt: skip
    return {"shape": list(ids.shape), "prompt": ids[:, :4]}


@case
def gpt2_is_saved_and_loaded():
    model = gpt2().eval()
    ids = integers(50, 2, 6)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = GPT2LMHeadModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return {"before": model(ids).logits, "after": again(ids).logits}


@case
def bert_trains_on_masked_words():
    ids = integers(50, 2, 10)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    return trained(
        fill(BertForMaskedLM(bert_config())),
        input_ids=ids, attention_mask=mask, labels=ids,
    )  # fmt: skip


@case
def bert_classifies():
    model = fill(BertForSequenceClassification(bert_config(num_labels=3)))
    return trained(model, input_ids=integers(50, 4, 8), labels=integers(3, 4))


@case
def llama_trains():
    ids = integers(50, 2, 10)
    return trained(llama(), input_ids=ids, labels=ids)


@case
def llama_generates():
    model = llama().eval()
    ids = integers(50, 2, 4, seed=1)
    mask = torch.ones_like(ids)
    mask[0, 0] = 0
    return {
        "greedy": model.generate(ids, attention_mask=mask, max_new_tokens=8),
        "beams": model.generate(
            ids, attention_mask=mask, max_new_tokens=8, num_beams=2
        ),
        "static": model.generate(ids, max_new_tokens=8, cache_implementation="static"),
    }


@case
def llama_in_bfloat16():
    model, ids = llama().eval(), integers(50, 2, 6)
    with torch.no_grad():
        exact = model(ids).logits
        rounded = model.to(torch.bfloat16)(ids).logits
    far = (rounded.float() - exact).abs().max() / exact.abs().max()
    return {"half": rounded.dtype == torch.bfloat16, "near": bool(far < 0.05)}


@case
def llama_is_saved_in_shards():
    model = llama().eval()
    ids = integers(50, 2, 6)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size="8KB")
        again = LlamaForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        return {"before": model(ids).logits, "after": again(ids).logits}


@case
def llama_attends_eagerly():
    model = llama()
    model.set_attn_implementation("eager")
    ids = integers(50, 2, 6)
    out = model.eval()(ids, output_attentions=True, output_hidden_states=True)
    return {"a": list(out.attentions), "h": list(out.hidden_states)}


@case
def llama_checkpoints_gradients():
    model = llama()
    model.gradient_checkpointing_enable()
    ids = integers(50, 2, 6)
    return trained(model, input_ids=ids, labels=ids)


@case
def t5_trains():
    return trained(t5(), input_ids=integers(50, 2, 8), labels=integers(50, 2, 5))


@case
def t5_generates():
    model = t5().eval()
    ids = integers(50, 2, 6)
    return {
        "greedy": model.generate(ids, max_new_tokens=8),
        "beams": model.generate(ids, max_new_tokens=8, num_beams=3),
    }


@case
def vit_trains():
    return trained(vit(), pixel_values=normal(2, 3, 16, 16), labels=integers(5, 2))


@case
def whisper_trains():
    return trained(
        whisper(), input_features=normal(2, 8, 32), labels=integers(50, 2, 6)
    )


@case
def whisper_generates():
    model = whisper().eval()
    ids = model.generate(normal(2, 8, 32), max_new_tokens=6, do_sample=False)
    return {"greedy": ids}


main()
