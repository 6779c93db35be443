"""diffusers: networks and schedules of diffusion models."""

import torch
from common import case, fill, integers, main, normal, train
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DDPMScheduler,
    DPMSolverMultistepScheduler,
    EulerDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    PNDMScheduler,
    UNet2DConditionModel,
    UNet2DModel,
    UniPCMultistepScheduler,
)  # fmt: skip


def unet():
    return fill(
        UNet2DModel(
            sample_size=8, in_channels=2, out_channels=2, layers_per_block=1,
            block_out_channels=(8, 16), norm_num_groups=4, attention_head_dim=4,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        ),
        scale=0.1,
    )  # fmt: skip


@case
def a_unet_learns_noise():
    model, schedule = unet(), DDPMScheduler(num_train_timesteps=50)
    clean, noise, steps = (
        normal(2, 2, 8, 8),
        normal(2, 2, 8, 8, seed=1),
        integers(50, 2),
    )
    noisy = schedule.add_noise(clean, noise, steps)
    out = train(
        model, lambda m: torch.nn.functional.mse_loss(m(noisy, steps).sample, noise)
    )
    return {**out, "noisy": noisy}


@case
def a_conditioned_unet():
    model = fill(
        UNet2DConditionModel(
            sample_size=8, in_channels=2, out_channels=2, layers_per_block=1,
            block_out_channels=(8, 16), norm_num_groups=4, cross_attention_dim=12,
            attention_head_dim=4,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        ),
        scale=0.1,
    )  # fmt: skip
    x, words = normal(2, 2, 8, 8), normal(2, 5, 12, seed=2)
    return train(model, lambda m: m(x, 7, words).sample.square().mean())


@case
def an_autoencoder():
    model = fill(
        AutoencoderKL(
            in_channels=3, out_channels=3, block_out_channels=(8, 16),
            norm_num_groups=4, latent_channels=2, layers_per_block=1,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        ),
        scale=0.1,
    )  # fmt: skip
    x = normal(1, 3, 16, 16)

    def loss(m):
        latent = m.encode(x).latent_dist
        back = m.decode(latent.mode()).sample
        return (back - x).square().mean() + 1e-3 * latent.kl().mean()

    return train(model, loss)


@case
def schedules():
    model, out = unet().eval(), {}
    kinds = {
        "ddim": DDIMScheduler(num_train_timesteps=50),
        "pndm": PNDMScheduler(num_train_timesteps=50),
        "dpm": DPMSolverMultistepScheduler(num_train_timesteps=50),
        "euler": EulerDiscreteScheduler(num_train_timesteps=50),
        "unipc": UniPCMultistepScheduler(num_train_timesteps=50),
        "flow": FlowMatchEulerDiscreteScheduler(num_train_timesteps=50),
    }
    for name, schedule in kinds.items():
        schedule.set_timesteps(4)
        x = normal(1, 2, 8, 8) * getattr(schedule, "init_noise_sigma", 1.0)
        with torch.no_grad():
            for t in schedule.timesteps:
                inputs = x
                if hasattr(schedule, "scale_model_input"):
                    inputs = schedule.scale_model_input(x, t)
                x = schedule.step(model(inputs, t).sample * 0.1, t, x).prev_sample
        out[name] = x
    return out


main()
