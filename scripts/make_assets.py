"""Write the files in src/sea_nn/vision/assets: run ``python scripts/make_assets.py``.

- fashion_sample.safetensors, boot.png, fashion_cnn.safetensors: from Fashion-MNIST (Debian's
  package dataset-fashion-mnist, or another copy given with --fashion); training takes minutes.
- cat.jpg, coffee.jpg: two CC0 photographs from scikit-image's wheel.
- imagenet_labels.txt: class names from the data files of timm's wheel, which is read but not
  imported (``pip install --no-deps timm`` is enough).

Parts can be made alone: ``python scripts/make_assets.py photos``.
"""

import argparse
import importlib.util
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from sea_bench.data.fashion import load_fashion
from sea_nn.model.outputs import predict
from sea_nn.vision.shipped import CLASSES, FashionCNN

ASSETS = Path(__file__).parent.parent / "src" / "sea_nn" / "vision" / "assets"
N_PER_CLASS = 20
SEED = 0
BATCH = 128
# WordNet gives two pairs of classes the same first word.
RENAMED_LABELS = {134: "crane (bird)", 517: "crane (machine)", 639: "maillot (tank suit)"}


def make_sample(folder: str | None) -> None:
    images, labels = (torch.from_numpy(array) for array in load_fashion("test", folder))
    chosen = torch.cat(
        [torch.nonzero(labels == k).flatten()[:N_PER_CLASS] for k in range(len(CLASSES))]
    )
    tensors = {
        "images": images[chosen],
        "labels": labels[chosen].to(torch.uint8),
        "test_index": chosen.to(torch.int32),
    }
    metadata = {"source": "Fashion-MNIST test set, Zalando Research, MIT licence"}
    save_file(tensors, ASSETS / "fashion_sample.safetensors", metadata)
    boot = images[chosen][CLASSES.index("Ankle boot") * N_PER_CLASS]
    Image.fromarray(boot.numpy()).save(ASSETS / "boot.png", optimize=True)
    print(f"fashion_sample: {len(chosen)} images")


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror half of the images and shift the whole batch by up to two pixels each way."""
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    images = torch.where(mirrored[:, None, None, None], images.flip(-1), images)
    down, right = torch.randint(0, 5, (2,), generator=generator).tolist()
    return pad(images, (2, 2, 2, 2))[..., down : down + 28, right : right + 28]


def make_cnn(folder: str | None, epochs: int) -> None:
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    (images, labels), (test_images, test_labels) = (
        (torch.from_numpy(images).unsqueeze(1) / 255, torch.from_numpy(labels))
        for images, labels in (load_fashion(split, folder) for split in ("train", "test"))
    )
    model = FashionCNN().train()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    n_batches = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=3e-3, total_steps=epochs * n_batches
    )
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=generator)
        for batch in order.split(BATCH)[:n_batches]:
            inputs = augment(images[batch], generator)
            loss = cross_entropy(model(inputs), labels[batch], label_smoothing=0.02)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1}/{epochs}: loss {loss.item():.3f}", flush=True)
    # The schedule is fixed and the last weights are kept: the test set chooses nothing.
    right = predict(model.eval(), test_images, 1000).argmax(1) == test_labels
    accuracy = float(right.float().mean())
    metadata = {
        "test_accuracy": f"{accuracy:.4f}",
        "seed": str(SEED),
        "epochs": str(epochs),
        "trained_by": "scripts/make_assets.py",
        "data": "Fashion-MNIST train set, Zalando Research, MIT licence",
    }
    save_file(model.state_dict(), ASSETS / "fashion_cnn.safetensors", metadata)
    print(f"fashion_cnn: test accuracy {accuracy:.2%}")


def make_photos() -> None:
    import skimage

    data = Path(skimage.__file__).parent / "data"
    for source, name in (("chelsea.png", "cat.jpg"), ("coffee.png", "coffee.jpg")):
        with Image.open(data / source) as image:
            image.convert("RGB").save(ASSETS / name, quality=92, optimize=True)
        print(f"{name}: {(ASSETS / name).stat().st_size / 1000:.0f} kB")


def make_labels() -> None:
    spec = importlib.util.find_spec("timm")
    if spec is None or spec.origin is None:
        raise SystemExit("labels need timm's files: pip install --no-deps timm")
    folder = Path(spec.origin).parent / "data" / "_info"
    lines = (folder / "imagenet_synset_to_lemma.txt").read_text(encoding="utf-8").splitlines()
    lemmas = dict(line.split("\t", 1) for line in lines)
    synsets = (folder / "imagenet_synsets.txt").read_text(encoding="utf-8").split()
    labels = [lemmas[synset].split(", ")[0] for synset in synsets]
    for index, label in RENAMED_LABELS.items():
        labels[index] = label
    if len(set(labels)) != 1000:
        raise SystemExit(f"expected 1000 different labels, got {len(set(labels))}")
    (ASSETS / "imagenet_labels.txt").write_text("\n".join(labels) + "\n", encoding="utf-8")
    print(f"imagenet_labels: {len(labels)} names")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="any of sample, cnn, photos, labels")
    parser.add_argument("--fashion", help="folder with the IDX files of Fashion-MNIST")
    parser.add_argument("--epochs", type=int, default=12)
    given = parser.parse_args()
    makers = {
        "sample": lambda: make_sample(given.fashion),
        "cnn": lambda: make_cnn(given.fashion, given.epochs),
        "photos": make_photos,
        "labels": make_labels,
    }
    torch.set_num_threads(2)
    for part in given.parts or makers:
        makers[part]()
    for path in ASSETS.iterdir():
        path.chmod(0o644)  # safetensors writes files that only their owner can read


if __name__ == "__main__":
    main()
