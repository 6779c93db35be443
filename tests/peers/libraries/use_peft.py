"""peft: adapters of a small language model."""

import tempfile

import torch
from common import case, fill, integers, main, train
from peft import (
    AdaLoraConfig,
    IA3Config,
    LoraConfig,
    PeftModel,
    PromptTuningConfig,
    get_peft_model,
)  # fmt: skip
from transformers import LlamaConfig, LlamaForCausalLM

IDS = integers(50, 2, 8)


def base():
    config = LlamaConfig(
        vocab_size=50, hidden_size=24, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    return fill(LlamaForCausalLM(config))


def adapted(config):
    model = get_peft_model(base(), config)
    fill(model, scale=0.1)
    counts = model.get_nb_trainable_parameters()
    out = train(model, lambda m: m(input_ids=IDS, labels=IDS).loss)
    return {**out, "counts": list(counts)}, model


@case
def low_rank():
    out, model = adapted(
        LoraConfig(
            r=4,
            lora_alpha=8,
            target_modules=["q_proj", "v_proj"],
            task_type="CAUSAL_LM",
        )
    )
    model.eval()
    with torch.no_grad():
        out["adapted"] = model(IDS).logits
        with model.disable_adapter():
            out["base"] = model(IDS).logits
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            again = base()
            again.load_state_dict(model.get_base_model().state_dict(), strict=False)
            loaded = PeftModel.from_pretrained(again, folder)
            names = sorted(n for n, _ in loaded.named_parameters() if "lora" in n)
        out["merged"] = model.merge_and_unload()(IDS).logits
    return {**out, "names": names}


@case
def weight_decomposed():
    return adapted(LoraConfig(r=4, use_dora=True, target_modules=["q_proj"]))[0]


@case
def others():
    return {
        "ia3": adapted(
            IA3Config(
                target_modules=["k_proj", "down_proj"],
                feedforward_modules=["down_proj"],
            )
        )[0],
        "adalora": adapted(
            AdaLoraConfig(r=4, target_modules=["q_proj"], total_step=10)
        )[0],
        "prompt": adapted(
            PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")
        )[0],
    }


main()
