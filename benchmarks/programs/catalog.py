"""Public PyTorch programs, each a model of a package on PyPI with its inputs.

A program is a function that returns ``(model, inputs)`` or ``(model, inputs, loss)``;
its doc names where the code comes from. All import ``torch``: real PyTorch under
``python``, Weft under ``weft run``. Sizes are small enough for a step in a fraction of
a second on one core, and large enough that arithmetic counts.
"""

import numpy as np
import torch
from torch import nn

PROGRAMS = {}
_draw = np.random.default_rng(0)


def program(package):
    """Put a function into the catalog under its own name."""

    def add(function):
        PROGRAMS[function.__name__] = function, package
        return function

    return add


def floats(*shape):
    return torch.from_numpy(_draw.normal(size=shape).astype("float32"))


def tokens(count, *shape):
    return torch.from_numpy(_draw.integers(0, count, shape))


def squares(out):
    """A loss of anything: the mean square of each floating tensor in it."""
    if isinstance(out, torch.Tensor):
        return out.float().pow(2).mean() if out.is_floating_point() else 0.0
    if isinstance(out, dict) or hasattr(out, "to_tuple"):
        return squares(list(out.values()))
    if isinstance(out, (list, tuple)):
        return sum(squares(o) for o in out)
    return 0.0


# -- vit-pytorch

SMALL = {"dim": 64, "depth": 3, "heads": 4, "mlp_dim": 128}


def picture(size=32, count=4):
    return (floats(count, 3, size, size),)


@program("vit-pytorch")
def vit():
    from vit_pytorch import ViT

    return ViT(image_size=32, patch_size=4, num_classes=10, **SMALL), picture()


@program("vit-pytorch")
def simple_vit():
    from vit_pytorch import SimpleViT

    return SimpleViT(image_size=32, patch_size=4, num_classes=10, **SMALL), picture()


@program("vit-pytorch")
def deep_vit():
    from vit_pytorch.deepvit import DeepViT

    return DeepViT(image_size=32, patch_size=4, num_classes=10, **SMALL), picture()


@program("vit-pytorch")
def cait():
    from vit_pytorch.cait import CaiT

    model = CaiT(image_size=32, patch_size=4, num_classes=10, cls_depth=1, **SMALL)
    return model, picture()


@program("vit-pytorch")
def cct():
    from vit_pytorch.cct import CCT

    model = CCT(
        img_size=32, embedding_dim=64, n_conv_layers=2, kernel_size=3, stride=1,
        padding=1, pooling_kernel_size=3, pooling_stride=2, pooling_padding=1,
        num_layers=3, num_heads=4, mlp_ratio=2.0, num_classes=10,
        positional_embedding="learnable", dropout_rate=0.0, attention_dropout=0.0,
        stochastic_depth_rate=0.0,
    )  # fmt: skip
    return model, picture()


@program("vit-pytorch")
def t2t():
    from vit_pytorch.t2t import T2TViT

    model = T2TViT(
        dim=64, image_size=32, depth=2, heads=4, mlp_dim=128, num_classes=10,
        t2t_layers=((7, 4), (3, 2)),
    )  # fmt: skip
    return model, picture()


@program("vit-pytorch")
def levit():
    from vit_pytorch.levit import LeViT

    model = LeViT(
        image_size=64, num_classes=10, stages=2, dim=(32, 64), depth=2, heads=(2, 4),
        mlp_mult=2,
    )  # fmt: skip
    return model, picture(64)


@program("vit-pytorch")
def cvt():
    from vit_pytorch.cvt import CvT

    model = CvT(
        num_classes=10, s1_emb_dim=16, s2_emb_dim=32, s3_emb_dim=64, s1_depth=1,
        s2_depth=1, s3_depth=2, s3_heads=4,
    )  # fmt: skip
    return model, picture(64)


@program("vit-pytorch")
def twins_svt():
    from vit_pytorch.twins_svt import TwinsSVT

    model = TwinsSVT(
        num_classes=10, s1_emb_dim=16, s1_patch_size=4, s1_local_patch_size=4,
        s1_depth=1, s2_emb_dim=32, s2_patch_size=2, s2_local_patch_size=4, s2_depth=1,
        s3_emb_dim=64, s3_patch_size=2, s3_local_patch_size=2, s3_depth=1,
        s4_emb_dim=64, s4_patch_size=1, s4_local_patch_size=2, s4_depth=1,
    )  # fmt: skip
    return model, picture(128, 2)


@program("vit-pytorch")
def crossformer():
    from vit_pytorch.crossformer import CrossFormer

    model = CrossFormer(
        num_classes=10, dim=(32, 32, 64, 64), depth=(1, 1, 2, 1),
        global_window_size=(8, 4, 2, 1), local_window_size=(8, 8, 4, 2),
    )  # fmt: skip
    return model, picture(128, 2)


@program("vit-pytorch")
def max_vit():
    from vit_pytorch.max_vit import MaxViT

    model = MaxViT(
        num_classes=10, dim_conv_stem=16, dim=16, dim_head=16, depth=(1, 1),
        window_size=4, mbconv_expansion_rate=2, mbconv_shrinkage_rate=0.25,
    )  # fmt: skip
    return model, picture(32)


@program("vit-pytorch")
def mobile_vit():
    from vit_pytorch.mobile_vit import MobileViT

    model = MobileViT(
        image_size=(64, 64), dims=[24, 32, 40], num_classes=10,
        channels=[8, 8, 16, 16, 24, 24, 32, 32, 40, 40, 64],
    )  # fmt: skip
    return model, picture(64)


@program("vit-pytorch")
def xcit():
    from vit_pytorch.xcit import XCiT

    model = XCiT(
        image_size=32, patch_size=4, num_classes=10, cls_depth=1,
        local_patch_kernel_size=3, **SMALL,
    )  # fmt: skip
    return model, picture()


@program("vit-pytorch")
def nest():
    from vit_pytorch.nest import NesT

    model = NesT(
        image_size=32, patch_size=2, dim=32, heads=2, num_hierarchies=3,
        block_repeats=(1, 1, 2), num_classes=10,
    )  # fmt: skip
    return model, picture()


@program("vit-pytorch")
def region_vit():
    from vit_pytorch.regionvit import RegionViT

    model = RegionViT(
        dim=(16, 32, 32, 64), depth=(1, 1, 1, 1), window_size=2, num_classes=10
    )
    return model, picture(64)


@program("vit-pytorch")
def scalable_vit():
    from vit_pytorch.scalable_vit import ScalableViT

    model = ScalableViT(
        num_classes=10, dim=16, heads=(1, 2, 4, 4), depth=(1, 1, 1, 1),
        ssa_dim_key=(8, 8, 8, 8), reduction_factor=(4, 2, 1, 1),
        window_size=(8, 4, None, None),
    )  # fmt: skip
    return model, picture(64)


@program("vit-pytorch")
def vivit():
    from vit_pytorch.vivit import ViViT

    model = ViViT(
        image_size=16, frames=4, image_patch_size=4, frame_patch_size=2,
        num_classes=10, dim=64, spatial_depth=2, temporal_depth=2, heads=4,
        mlp_dim=128,
    )  # fmt: skip
    return model, (floats(2, 3, 4, 16, 16),)


@program("vit-pytorch")
def vit_with_fft():
    from vit_pytorch.simple_vit_with_fft import SimpleViT

    model = SimpleViT(
        image_size=32, patch_size=4, freq_patch_size=4, num_classes=10, **SMALL
    )
    return model, picture()


# -- labml_nn: annotated implementations of papers


def _layer(dim=64, heads=4):
    from labml_nn.transformers.feed_forward import FeedForward
    from labml_nn.transformers.mha import MultiHeadAttention
    from labml_nn.transformers.models import TransformerLayer

    return TransformerLayer(
        d_model=dim,
        self_attn=MultiHeadAttention(heads, dim, 0.0),
        feed_forward=FeedForward(dim, 128, 0.0),
        dropout_prob=0.0,
    )


class Masked(nn.Module):
    """Calls a model with a causal mask."""

    def __init__(self, model, size):
        super().__init__()
        self.model = model
        mask = torch.tril(torch.ones(size, size)).bool()
        self.register_buffer("mask", mask.unsqueeze(-1))

    def forward(self, x):
        return self.model(x, mask=self.mask)


class Embedded(nn.Module):
    """A language model around a stack of layers."""

    def __init__(self, stack, dim=64, count=100, **given):
        super().__init__()
        self.embedding = nn.Embedding(count, dim)
        self.stack, self.given = stack, given
        self.out = nn.Linear(dim, count)

    def forward(self, x, y):
        found = self.stack(self.embedding(x), **self.given)
        found = found[0] if isinstance(found, tuple) else found
        logits = self.out(found)
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())


def text(length=32, batch=8, count=100):
    return tokens(count, length, batch), tokens(count, length, batch)


def itself(loss):
    return loss


@program("labml-nn")
def labml_transformer():
    from labml_nn.transformers.models import Encoder

    mask = torch.tril(torch.ones(32, 32)).bool().unsqueeze(-1)
    return Embedded(Encoder(_layer(), 3), mask=mask), text(), itself


@program("labml-nn")
def labml_alibi():
    from labml_nn.transformers.alibi import AlibiMultiHeadAttention
    from labml_nn.transformers.feed_forward import FeedForward
    from labml_nn.transformers.models import Encoder, TransformerLayer

    layer = TransformerLayer(
        d_model=64,
        self_attn=AlibiMultiHeadAttention(4, 64, 0.0),
        feed_forward=FeedForward(64, 128, 0.0),
        dropout_prob=0.0,
    )
    mask = torch.tril(torch.ones(32, 32)).bool().unsqueeze(-1)
    return Embedded(Encoder(layer, 2), mask=mask), text(), itself


@program("labml-nn")
def labml_rope():
    from labml_nn.transformers.feed_forward import FeedForward
    from labml_nn.transformers.models import Encoder, TransformerLayer
    from labml_nn.transformers.rope import RotaryPEMultiHeadAttention

    layer = TransformerLayer(
        d_model=64,
        self_attn=RotaryPEMultiHeadAttention(4, 64, 1.0, 0.0),
        feed_forward=FeedForward(64, 128, 0.0),
        dropout_prob=0.0,
    )
    mask = torch.tril(torch.ones(32, 32)).bool().unsqueeze(-1)
    return Embedded(Encoder(layer, 2), mask=mask), text(), itself


@program("labml-nn")
def labml_fnet():
    from labml_nn.transformers.feed_forward import FeedForward
    from labml_nn.transformers.fnet import FNetMix
    from labml_nn.transformers.models import Encoder, TransformerLayer

    layer = TransformerLayer(
        d_model=64,
        self_attn=FNetMix(),
        feed_forward=FeedForward(64, 128, 0.0),
        dropout_prob=0.0,
    )
    return Embedded(Encoder(layer, 2), mask=None), text(), itself


@program("labml-nn")
def labml_gmlp():
    from labml_nn.transformers.gmlp import GMLPBlock

    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([GMLPBlock(64, 128, 32) for _ in range(2)])

        def forward(self, x):
            for block in self.blocks:
                x = block(x=x, mask=None)
            return x

    return Embedded(Stack()), text(), itself


@program("labml-nn")
def labml_xl():
    from labml_nn.transformers.feed_forward import FeedForward
    from labml_nn.transformers.xl import TransformerXL, TransformerXLLayer
    from labml_nn.transformers.xl.relative_mha import RelativeMultiHeadAttention

    layer = TransformerXLLayer(
        d_model=64,
        self_attn=RelativeMultiHeadAttention(4, 64, 0.0),
        feed_forward=FeedForward(64, 128, 0.0),
        dropout_prob=0.0,
    )
    mask = torch.tril(torch.ones(32, 32)).bool().unsqueeze(-1)
    return Embedded(TransformerXL(layer, 2), mem=[], mask=mask), text(), itself


@program("labml-nn")
def labml_switch():
    from labml_nn.transformers.feed_forward import FeedForward
    from labml_nn.transformers.mha import MultiHeadAttention
    from labml_nn.transformers.switch import (
        SwitchFeedForward,
        SwitchTransformer,
        SwitchTransformerLayer,
    )

    layer = SwitchTransformerLayer(
        d_model=64,
        attn=MultiHeadAttention(4, 64, 0.0),
        feed_forward=SwitchFeedForward(
            capacity_factor=1.2, drop_tokens=False, is_scale_prob=True, n_experts=4,
            expert=FeedForward(64, 128, 0.0), d_model=64,
        ),
        dropout_prob=0.0,
    )  # fmt: skip
    mask = torch.tril(torch.ones(32, 32)).bool().unsqueeze(-1)
    return Embedded(SwitchTransformer(layer, 2), mask=mask), text(), itself


@program("labml-nn")
def labml_fast_weights():
    from labml_nn.transformers.fast_weights import (
        DPFP,
        FastWeightsAttention,
        FastWeightsAttentionTransformer,
        FastWeightsAttentionTransformerLayer,
    )
    from labml_nn.transformers.feed_forward import FeedForward

    layer = FastWeightsAttentionTransformerLayer(
        d_model=64,
        attn=FastWeightsAttention(4, 64, 0.0, DPFP()),
        feed_forward=FeedForward(64, 128, 0.0),
        dropout_prob=0.0,
    )
    stack = FastWeightsAttentionTransformer(layer, 1)
    return Embedded(stack), text(16), itself


@program("labml-nn")
def labml_feedback():
    from labml_nn.transformers.feed_forward import FeedForward
    from labml_nn.transformers.feedback import (
        FeedbackAttention,
        FeedbackTransformer,
        FeedbackTransformerLayer,
    )

    layer = FeedbackTransformerLayer(
        d_model=64,
        attn=FeedbackAttention(4, 64, 0.0),
        feed_forward=FeedForward(64, 128, 0.0),
        dropout_prob=0.0,
    )
    return Embedded(FeedbackTransformer(layer, 1)), text(16), itself


@program("labml-nn")
def labml_primer():
    from labml_nn.transformers.feed_forward import FeedForward
    from labml_nn.transformers.models import Encoder, TransformerLayer
    from labml_nn.transformers.primer_ez import MultiDConvHeadAttention, SquaredReLU

    layer = TransformerLayer(
        d_model=64,
        self_attn=MultiDConvHeadAttention(4, 64, 0.0),
        feed_forward=FeedForward(64, 128, 0.0, activation=SquaredReLU()),
        dropout_prob=0.0,
    )
    mask = torch.tril(torch.ones(32, 32)).bool().unsqueeze(-1)
    return Embedded(Encoder(layer, 2), mask=mask), text(), itself


@program("labml-nn")
def labml_lstm():
    from labml_nn.lstm import LSTM

    return LSTM(32, 64, 2), (floats(12, 8, 32),)


@program("labml-nn")
def labml_hyper_lstm():
    from labml_nn.hypernetworks.hyper_lstm import HyperLSTM

    return HyperLSTM(32, 64, 16, 8, 1), (floats(8, 8, 32),)


@program("labml-nn")
def labml_highway():
    from labml_nn.recurrent_highway_networks import RHN

    return RHN(32, 64, 3, 1), (floats(8, 8, 32),)


@program("labml-nn")
def labml_resnet():
    from labml_nn.resnet import ResNetBase

    return ResNetBase([1, 1], [16, 32], img_channels=3, first_kernel_size=3), picture()


@program("labml-nn")
def labml_unet():
    from labml_nn.unet import UNet

    return UNet(1, 1), (floats(1, 1, 64, 64),)


@program("labml-nn")
def labml_conv_mixer():
    from labml_nn.conv_mixer import (
        ClassificationHead,
        ConvMixer,
        ConvMixerLayer,
        PatchEmbeddings,
    )

    model = ConvMixer(
        ConvMixerLayer(32, 5), 3, PatchEmbeddings(32, 4, 3), ClassificationHead(32, 10)
    )
    return model, picture()


@program("labml-nn")
def labml_capsules():
    from labml_nn.capsule_networks.mnist import MNISTCapsuleNetworkModel

    return MNISTCapsuleNetworkModel(), (floats(2, 1, 28, 28),)


@program("labml-nn")
def labml_ddpm_unet():
    from labml_nn.diffusion.ddpm.unet import UNet

    model = UNet(
        image_channels=3, n_channels=32, ch_mults=(1, 2), is_attn=(False, True),
        n_blocks=1,
    )  # fmt: skip
    return model, (floats(2, 3, 16, 16), tokens(1000, 2).float())


@program("labml-nn")
def labml_dcgan():
    from labml_nn.gan.dcgan import Discriminator, Generator

    model = nn.Sequential(Generator(), Discriminator())
    return model, (floats(4, 100),)


@program("labml-nn")
def labml_cycle_gan():
    from labml_nn.gan.cycle_gan import GeneratorResNet

    return GeneratorResNet(3, 1), (floats(1, 3, 32, 32),)


@program("labml-nn")
def labml_gat():
    from labml_nn.graphs.gat import GraphAttentionLayer

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = GraphAttentionLayer(16, 32, 4, dropout=0.0)
            self.two = GraphAttentionLayer(32, 7, 1, is_concat=False, dropout=0.0)

        def forward(self, x, near):
            return self.two(torch.relu(self.one(x, near)), near)

    near = (floats(40, 40) > 0.5) | torch.eye(40).bool()
    return Two(), (floats(40, 16), near.unsqueeze(-1))


@program("labml-nn")
def labml_gat2():
    from labml_nn.graphs.gatv2 import GraphAttentionV2Layer

    near = (floats(40, 40) > 0.5) | torch.eye(40).bool()
    model = GraphAttentionV2Layer(16, 32, 4, dropout=0.0)
    return model, (floats(40, 16), near.unsqueeze(-1))


@program("labml-nn")
def labml_ponder():
    from labml_nn.adaptive_computation.ponder_net import ParityPonderGRU

    model = ParityPonderGRU(8, 32, 6)

    class Halting(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            p, y, _, _ = self.inner(x)
            return (p * y).sum(0)

    return Halting(), (floats(16, 8),)


@program("labml-nn")
def labml_batch_channel_norm():
    from labml_nn.normalization.batch_channel_norm import BatchChannelNorm
    from labml_nn.normalization.weight_standardization.conv2d import Conv2d

    model = nn.Sequential(
        Conv2d(3, 16, 3), BatchChannelNorm(16, 4), nn.ReLU(), Conv2d(16, 8, 3)
    )
    return model, picture()


# -- x-transformers, perceiver-pytorch, vector-quantize-pytorch, entmax, pytorch-crf


@program("x-transformers")
def x_decoder():
    from x_transformers import Decoder, TransformerWrapper

    model = TransformerWrapper(
        num_tokens=100, max_seq_len=64,
        attn_layers=Decoder(dim=64, depth=3, heads=4, rotary_pos_emb=True),
    )  # fmt: skip
    return model, (tokens(100, 4, 32),)


@program("x-transformers")
def x_encoder():
    from x_transformers import Encoder, TransformerWrapper

    model = TransformerWrapper(
        num_tokens=100, max_seq_len=64,
        attn_layers=Encoder(
            dim=64, depth=2, heads=4, ff_glu=True, use_rmsnorm=True, alibi_pos_bias=True
        ),
    )  # fmt: skip
    return model, (tokens(100, 4, 32),)


@program("x-transformers")
def x_encoder_decoder():
    from x_transformers import XTransformer

    model = XTransformer(
        dim=64, enc_num_tokens=50, enc_depth=2, enc_heads=4, enc_max_seq_len=32,
        dec_num_tokens=50, dec_depth=2, dec_heads=4, dec_max_seq_len=32,
    )  # fmt: skip
    return model, (tokens(50, 2, 32), tokens(50, 2, 32)), itself


@program("x-transformers")
def x_vit():
    from x_transformers import Encoder, ViTransformerWrapper

    model = ViTransformerWrapper(
        image_size=32, patch_size=4, num_classes=10,
        attn_layers=Encoder(dim=64, depth=2, heads=4),
    )  # fmt: skip
    return model, picture()


@program("perceiver-pytorch")
def perceiver():
    from perceiver_pytorch import Perceiver

    model = Perceiver(
        input_channels=3, input_axis=2, num_freq_bands=4, max_freq=8.0, depth=2,
        num_latents=16, latent_dim=32, cross_heads=1, latent_heads=2,
        cross_dim_head=16, latent_dim_head=16, num_classes=10,
        self_per_cross_attn=1,
    )  # fmt: skip
    return model, (floats(2, 16, 16, 3),)


@program("vector-quantize-pytorch")
def finite_scalars():
    from vector_quantize_pytorch import FSQ

    model = nn.Sequential(nn.Linear(16, 4), FSQ([8, 5, 5, 5]))
    return model, (floats(4, 32, 16),)


@program("entmax")
def entmax_attention():
    from entmax import entmax15, sparsemax

    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x):
            score = self.k(x) @ x.transpose(1, 2)
            return (entmax15(score, -1) + sparsemax(score, -1)) @ self.v(x)

    return Attend(), (floats(4, 24, 32),)


@program("pytorch-crf")
def crf_tagger():
    from torchcrf import CRF

    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(50, 32)
            self.lstm = nn.LSTM(32, 16, bidirectional=True)
            self.out = nn.Linear(32, 5)
            self.crf = CRF(5)

        def forward(self, x, tags, mask):
            return -self.crf(self.out(self.lstm(self.embed(x))[0]), tags, mask)

    mask = torch.ones(12, 4, dtype=torch.uint8)
    mask[9:, 1] = 0
    return Tagger(), (tokens(50, 12, 4), tokens(5, 12, 4), mask.bool()), itself


# -- transformers


def _hf(cls, config, **inputs):
    import transformers

    with torch.no_grad():
        model = getattr(transformers, cls)(config)
    return model, inputs


@program("transformers")
def hf_gpt2():
    from transformers import GPT2Config

    config = GPT2Config(
        vocab_size=100, n_positions=64, n_embd=64, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    x = tokens(100, 4, 32)
    return *_hf("GPT2LMHeadModel", config, input_ids=x, labels=x), lambda o: o.loss


@program("transformers")
def hf_bert():
    from transformers import BertConfig

    config = BertConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, max_position_embeddings=64, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    x = tokens(100, 4, 32)
    mask = torch.ones(4, 32, dtype=torch.long)
    mask[1, 20:] = 0
    given = {"input_ids": x, "labels": x, "attention_mask": mask}
    return *_hf("BertForMaskedLM", config, **given), lambda o: o.loss


@program("transformers")
def hf_llama():
    from transformers import LlamaConfig

    config = LlamaConfig(
        vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    x = tokens(100, 4, 32)
    return *_hf("LlamaForCausalLM", config, input_ids=x, labels=x), lambda o: o.loss


@program("transformers")
def hf_t5():
    from transformers import T5Config

    config = T5Config(
        vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4,
        dropout_rate=0.0, decoder_start_token_id=0,
    )  # fmt: skip
    x, y = tokens(100, 4, 24), tokens(100, 4, 16)
    given = {"input_ids": x, "labels": y}
    return *_hf("T5ForConditionalGeneration", config, **given), lambda o: o.loss


@program("transformers")
def hf_vit():
    from transformers import ViTConfig

    config = ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=128, image_size=32, patch_size=4, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    given = {"pixel_values": floats(4, 3, 32, 32), "labels": tokens(2, 4)}
    return *_hf("ViTForImageClassification", config, **given), lambda o: o.loss


@program("transformers")
def hf_whisper():
    from transformers import WhisperConfig

    config = WhisperConfig(
        vocab_size=100, num_mel_bins=16, encoder_layers=2, encoder_attention_heads=4,
        decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=128,
        encoder_ffn_dim=128, d_model=64, max_source_positions=32,
        max_target_positions=32, dropout=0.0, decoder_start_token_id=1,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    given = {"input_features": floats(2, 16, 64), "labels": tokens(100, 2, 16)}
    return *_hf("WhisperForConditionalGeneration", config, **given), lambda o: o.loss


@program("transformers")
def hf_mamba():
    from transformers import MambaConfig

    config = MambaConfig(
        vocab_size=100, hidden_size=32, state_size=8, num_hidden_layers=2
    )
    x = tokens(100, 2, 16)
    return *_hf("MambaForCausalLM", config, input_ids=x, labels=x), lambda o: o.loss


@program("transformers")
def hf_mixtral():
    from transformers import MixtralConfig

    config = MixtralConfig(
        vocab_size=100, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4,
        max_position_embeddings=64,
    )  # fmt: skip
    x = tokens(100, 2, 16)
    return *_hf("MixtralForCausalLM", config, input_ids=x, labels=x), lambda o: o.loss


@program("transformers")
def hf_clip():
    from transformers import CLIPConfig, CLIPTextConfig, CLIPVisionConfig

    shared = {
        "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "projection_dim": 32,
    }  # fmt: skip
    words = CLIPTextConfig(vocab_size=100, eos_token_id=2, **shared)
    sight = CLIPVisionConfig(image_size=32, patch_size=8, **shared)
    config = CLIPConfig(
        text_config=words.to_dict(), vision_config=sight.to_dict(), projection_dim=32
    )
    given = {
        "input_ids": tokens(100, 4, 12), "pixel_values": floats(4, 3, 32, 32),
        "return_loss": True,
    }  # fmt: skip
    return *_hf("CLIPModel", config, **given), lambda o: o.loss


# -- timm, efficientnet_pytorch, lpips, kornia


def _timm(name, **given):
    import timm

    return timm.create_model(name, num_classes=10, **given)


@program("timm")
def timm_resnet():
    return _timm("resnet18"), picture(64, 2)


@program("timm")
def timm_convnext():
    return _timm("convnext_atto"), picture(64, 2)


@program("timm")
def timm_efficientnet():
    return _timm("efficientnet_lite0"), picture(64, 2)


@program("timm")
def timm_mobilenet():
    return _timm("mobilenetv3_small_050"), picture(64, 2)


@program("timm")
def timm_vit():
    given = {
        "img_size": 32,
        "patch_size": 4,
        "embed_dim": 64,
        "depth": 3,
        "num_heads": 4,
    }
    return _timm("vit_tiny_patch16_224", **given), picture()


@program("timm")
def timm_swin():
    model = _timm(
        "swin_tiny_patch4_window7_224", img_size=64, patch_size=4, window_size=4,
        embed_dim=32, depths=(1, 1, 2, 1), num_heads=(2, 2, 4, 4),
    )  # fmt: skip
    return model, picture(64, 2)


@program("timm")
def timm_mixer():
    from timm.models.mlp_mixer import MlpMixer

    model = MlpMixer(
        num_classes=10, img_size=32, patch_size=4, num_blocks=3, embed_dim=64
    )
    return model, picture()


@program("timm")
def timm_densenet():
    from timm.models.densenet import DenseNet

    model = DenseNet(growth_rate=8, block_config=(2, 4, 4), num_classes=10)
    return model, picture(64, 2)


@program("timm")
def timm_regnet():
    return _timm("regnetx_002"), picture(64, 2)


@program("efficientnet_pytorch")
def efficientnet():
    from efficientnet_pytorch import EfficientNet

    model = EfficientNet.from_name(
        "efficientnet-b0", image_size=64, num_classes=10, drop_connect_rate=0.0
    )
    return model, picture(64, 2)


@program("kornia")
def kornia_losses():
    from kornia.filters import gaussian_blur2d
    from kornia.losses import ssim_loss

    class Restore(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x):
            y = gaussian_blur2d(self.conv(x), (5, 5), (1.5, 1.5))
            return ssim_loss(y, x, 5)

    return Restore(), picture(), itself


# -- equations, graphs, tables


@program("torchdiffeq")
def neural_ode():
    from torchdiffeq import odeint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))

        def forward(self, t, y):
            return self.net(y**3)

    class Solve(nn.Module):
        def __init__(self):
            super().__init__()
            self.field = Field()

        def forward(self, y):
            times = torch.linspace(0.0, 1.0, 5)
            return odeint(self.field, y, times, method="rk4")

    return Solve(), (floats(16, 8),)


@program("torchdiffeq")
def neural_ode_adjoint():
    from torchdiffeq import odeint_adjoint

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 8))

        def forward(self, t, y):
            return self.net(y)

    class Solve(nn.Module):
        def __init__(self):
            super().__init__()
            self.field = Field()

        def forward(self, y):
            times = torch.linspace(0.0, 1.0, 3)
            return odeint_adjoint(self.field, y, times, method="dopri5")

    return Solve(), (floats(16, 8),)


def _graph(nodes=60, edges=240, features=16):
    return floats(nodes, features), tokens(nodes, 2, edges)


@program("torch_geometric")
def graph_convolution():
    from torch_geometric.nn import GCNConv

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = GCNConv(16, 32), GCNConv(32, 7)

        def forward(self, x, edges):
            return self.two(self.one(x, edges).relu(), edges)

    return Net(), _graph()


@program("torch_geometric")
def graph_attention():
    from torch_geometric.nn import GATConv, global_mean_pool

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = GATConv(16, 8, heads=4)
            self.two = GATConv(32, 7, heads=1)

        def forward(self, x, edges, batch):
            out = self.two(nn.functional.elu(self.one(x, edges)), edges)
            return global_mean_pool(out, batch)

    x, edges = _graph()
    return Net(), (x, edges, torch.arange(60) // 20)


@program("torch_geometric")
def graph_sage():
    from torch_geometric.nn import SAGEConv

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = SAGEConv(16, 32), SAGEConv(32, 7)

        def forward(self, x, edges):
            return self.two(self.one(x, edges).relu(), edges)

    return Net(), _graph()


@program("pytorch-tabnet")
def tabnet():
    from pytorch_tabnet.tab_network import TabNet

    group = torch.eye(12)
    model = TabNet(12, 3, n_d=8, n_a=8, n_steps=3, group_attention_matrix=group)
    return model, (floats(64, 12),)


@program("denoising-diffusion-pytorch")
def denoising_unet():
    from denoising_diffusion_pytorch import Unet

    model = Unet(dim=16, dim_mults=(1, 2), flash_attn=False)
    return model, (floats(2, 3, 16, 16), tokens(1000, 2))


@program("einops")
def einops_mixer():
    from einops.layers.torch import Rearrange, Reduce

    model = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4),
        nn.Linear(48, 64),
        nn.GELU(),
        Reduce("b n c -> b c", "mean"),
        nn.Linear(64, 10),
    )
    return model, picture()
