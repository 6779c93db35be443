"""kornia: filters, colours, geometry, losses and features of images."""

import kornia as K
import torch
from common import case, main, normal

X = normal(2, 3, 16, 20).sigmoid()


@case
def filters():
    f = K.filters
    x = X.clone().requires_grad_()
    out = {
        "gaussian": f.gaussian_blur2d(x, (5, 5), (1.2, 1.2)), "sobel": f.sobel(x),
        "median": f.median_blur(x, (3, 3)), "box": f.box_blur(x, (3, 5)),
        "laplacian": f.laplacian(x, 3), "canny": f.canny(x.detach())[0],
        "bilateral": f.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5)),
        "gradient": f.spatial_gradient(x),
        "unsharp": f.unsharp_mask(x, (3, 3), (1.0, 1.0)),
    }  # fmt: skip
    sum(v.square().sum() for v in out.values() if v.requires_grad).backward()
    return {**out, "x": x.grad}


@case
def colours():
    c = K.color
    return {
        "gray": c.rgb_to_grayscale(X), "hsv": c.rgb_to_hsv(X), "lab": c.rgb_to_lab(X),
        "ycbcr": c.rgb_to_ycbcr(X), "back": c.hsv_to_rgb(c.rgb_to_hsv(X)),
        "xyz": c.rgb_to_xyz(X), "yuv": c.rgb_to_yuv(X),
    }  # fmt: skip


@case
def geometry():
    g = K.geometry
    angle = torch.tensor([30.0, -20.0], requires_grad=True)
    turned = g.rotate(X, angle)
    turned.square().sum().backward()
    points = torch.tensor([[[1.0, 1], [12, 2], [11, 13], [2, 12]]])
    square = torch.tensor([[[0.0, 0], [15, 0], [15, 15], [0, 15]]])
    matrix = g.get_perspective_transform(points, square)
    return {
        "rotated": turned, "angle": angle.grad, "matrix": matrix,
        "warped": g.warp_perspective(X[:1], matrix, (16, 16)),
        "resized": g.resize(X, (8, 10)), "scaled": g.scale(X, torch.tensor([1.5])),
        "quaternion": g.axis_angle_to_rotation_matrix(normal(2, 3)),
        "homography": g.find_homography_dlt(points, square),
        "flipped": g.hflip(X), "pyramid": g.pyrdown(X),
    }  # fmt: skip


@case
def losses_and_features():
    a, b = X, X.flip(-1)
    return {
        "ssim": K.losses.ssim_loss(a, b, 5), "tv": K.losses.total_variation(a),
        "psnr": K.metrics.psnr(a, b, 1.0),
        "dice": K.losses.dice_loss(normal(2, 3, 4, 4), torch.ones(2, 4, 4).long()),
        "focal": K.losses.focal_loss(
            normal(2, 3, 4, 4), torch.ones(2, 4, 4).long(), 0.5, reduction="mean"
        ),
        "harris": K.feature.harris_response(a), "hist": K.enhance.equalize(a),
        "contrast": K.enhance.adjust_contrast(a, 1.3),
        "gamma": K.enhance.adjust_gamma(a, 0.8),
        "dilated": K.morphology.dilation(a, torch.ones(3, 3)),
    }  # fmt: skip


@case
def augmentations():
    torch.manual_seed(0)
    chain = K.augmentation.AugmentationSequential(
        K.augmentation.RandomHorizontalFlip(p=1.0),
        K.augmentation.CenterCrop((8, 8)),
        K.augmentation.Normalize(torch.tensor([0.5] * 3), torch.tensor([0.2] * 3)),
        data_keys=["input"],
    )
    noisy = K.augmentation.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0)(X)
    return {"chain": chain(X), "shape": list(noisy.shape)}


main()
