"""x-transformers: decoders, encoders and a vision transformer."""

import torch
from common import case, fill, integers, main, normal, train
from x_transformers import (
    AutoregressiveWrapper,
    Decoder,
    Encoder,
    TransformerWrapper,
    ViTransformerWrapper,
    XTransformer,
)


def decoder(**options):
    layers = Decoder(dim=24, depth=2, heads=2, attn_dim_head=12, **options)
    return fill(TransformerWrapper(num_tokens=40, max_seq_len=24, attn_layers=layers))


@case
def a_language_model_trains():
    ids = integers(40, 2, 12)
    model = AutoregressiveWrapper(decoder())
    return train(model, lambda m: m(ids))


@case
def rotary_positions_and_gates():
    ids = integers(40, 2, 12)
    model = decoder(
        rotary_pos_emb=True, ff_glu=True, ff_swish=True, use_rmsnorm=True,
        attn_kv_heads=1, attn_qk_norm=True,
    )  # fmt: skip
    out = train(AutoregressiveWrapper(model), lambda m: m(ids))
    with torch.no_grad():
        out["logits"] = model(ids)
    return out


@case
def relative_positions_and_memory():
    ids = integers(40, 2, 12)
    model = decoder(rel_pos_bias=True, alibi_pos_bias=False, attn_num_mem_kv=2)
    with torch.no_grad():
        return {"logits": model(ids)}


@case
def it_generates():
    model = AutoregressiveWrapper(decoder()).eval()
    ids = integers(40, 2, 4)
    return {
        "greedy": model.generate(ids, 8, temperature=0.0),
        "without cache": model.generate(ids, 8, temperature=0.0, cache_kv=False),
    }


@case
def a_vision_transformer():
    model = ViTransformerWrapper(
        image_size=16, patch_size=4, num_classes=5,
        attn_layers=Encoder(dim=24, depth=2, heads=2, attn_dim_head=12),
    )  # fmt: skip
    fill(model)
    images, labels = normal(2, 3, 16, 16), integers(5, 2)
    return train(model, lambda m: torch.nn.functional.cross_entropy(m(images), labels))


@case
def an_encoder_and_a_decoder():
    model = XTransformer(
        dim=24, enc_num_tokens=40, enc_depth=1, enc_heads=2, enc_max_seq_len=12,
        dec_num_tokens=40, dec_depth=1, dec_heads=2, dec_max_seq_len=12,
    )  # fmt: skip
    fill(model)
    source, target = integers(40, 2, 8), integers(40, 2, 9, seed=1)
    mask = torch.ones(2, 8).bool()
    return train(model, lambda m: m(source, target, mask=mask))


main()
