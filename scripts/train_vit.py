"""Train the bench's vision transformer on Fashion-MNIST: python scripts/train_vit.py [seconds].

About 150 s on a large GPU for .92 of the test images. Patches are hidden at random while it
learns, as questions hide them later. Writes src/sea_bench/assets/fashion_vit.safetensors. (The
shipped weights also had up to a tenth of their layers left out at random while they learned.)
"""

import math
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from sea_bench.data.fashion import load_fashion
from sea_bench.vit import WEIGHTS, build_vit

BATCH, RATE, EPOCHS = 512, 1.5e-3, 60
MEAN, STD = 0.2860, 0.3530  # of the training images
PATH = Path(__file__).parents[1] / "src/sea_bench/assets" / WEIGHTS


def change(images: Tensor, patch: int = 4) -> Tensor:
    """Flip half of the images, move all by up to two pixels, hide up to a quarter of patches."""
    flip = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    images = torch.where(flip, images.flip(3), images)
    row, column = torch.randint(0, 5, (2,)).tolist()
    images = functional.pad(images, (2, 2, 2, 2))[:, :, row : row + 28, column : column + 28]
    share = 0.25 * torch.rand(len(images), 1, 1, 1, device=images.device)
    kept = torch.rand(len(images), 1, 7, 7, device=images.device) > share
    return images * kept.repeat_interleave(patch, 2).repeat_interleave(patch, 3)


def main(seconds: float) -> None:
    """Train, for at most so many seconds, and write the weights."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    data = {}
    for split in ("train", "test"):
        images, labels = load_fashion(split)
        x = (torch.as_tensor(images).unsqueeze(1).float() / 255 - MEAN) / STD
        data[split] = x.to(device), torch.as_tensor(labels).to(device)
    x, y = data["train"]
    model = build_vit().to(device).train()
    optimiser = torch.optim.AdamW(model.parameters(), RATE, betas=(0.9, 0.98), weight_decay=0.05)
    start, step, share = time.monotonic(), 0, 0.0
    while share < 1:
        for rows in torch.randperm(len(x), device=device).split(BATCH):
            step += 1
            share = step * BATCH / (EPOCHS * len(x))
            share = max(share, (time.monotonic() - start) / seconds)
            rate = RATE * min(1, step / 300) * (0.5 + 0.5 * math.cos(math.pi * min(1, share)))
            optimiser.param_groups[0]["lr"] = rate
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                logits = model(change(x[rows] - x.min()) + x.min()).logits
                loss = functional.cross_entropy(logits, y[rows], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            if share >= 1:
                break
    with torch.no_grad():
        x, y = data["test"]
        right = (model.eval()(x).logits.argmax(1) == y).float().mean()
    print(f"{float(right):.4f} of the test images after {time.monotonic() - start:.0f} s")
    weights = model.cpu().state_dict()
    first = "vit.embeddings.patch_embeddings.projection"
    # The network takes pixels in [0, 1]: their mean and deviation go into the first layer.
    weights[f"{first}.bias"] -= MEAN / STD * weights[f"{first}.weight"].sum((1, 2, 3))
    weights[f"{first}.weight"] /= STD
    save_file({name: part.half().contiguous() for name, part in weights.items()}, PATH)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 600.0)
