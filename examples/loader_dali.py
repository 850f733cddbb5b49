"""Batches of a Loader through a pipeline of DALI, which augments them where they lie.

    python examples/loader_dali.py [--device cuda:0] [--epochs 2]

A sample is two steps of a field and the next one, as channels of an image. The pipeline mirrors
half of the samples, east to west. On a GPU the chunks are decoded there and DALI reads the batches
in that memory, without a copy. It needs DALI (nvidia-dali-cuda120 or nvidia-dali-cuda130).
"""

import argparse

import headrace as hr
import numpy as np
from headrace.loader import Loader
from nvidia.dali import fn, pipeline_def

BATCH_SIZE, PREFETCH = 16, 2


def travelling_waves():
    time, lat, lon = np.ogrid[0:512, 0:32, 0:64]
    field = np.sin(0.2 * lon + 0.3 * time) + np.cos(0.1 * lat - 0.2 * time)
    array = hr.create_array(
        hr.memory_store(), shape=field.shape, dtype="float32", chunks=(8, 32, 64)
    )
    array[...] = field
    return array


@pipeline_def(batch_size=BATCH_SIZE, num_threads=2, prefetch_queue_depth=PREFETCH)
def mirrored(loader, device):
    outputs = fn.external_source(
        source=loader.dali(PREFETCH),
        num_outputs=len(loader.names),
        device=device,
        layout="CHW",
        no_copy=True,
        cycle="raise",  # StopIteration at the end of an epoch; the next one after reset()
    )
    half = fn.random.coin_flip(probability=0.5)
    return tuple(fn.flip(output, horizontal=half) for output in outputs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    loader = Loader(
        {"x": travelling_waves()},
        batch_size=BATCH_SIZE,
        window=2,
        lead_time=1,
        layout="NCHW",
        device=arguments.device,
    )
    gpu = arguments.device != "cpu"
    pipeline = mirrored(
        loader, device="gpu" if gpu else "cpu", device_id=int(arguments.device[5:]) if gpu else None
    )
    for epoch in range(arguments.epochs):
        batches = 0
        try:
            while True:
                (images,) = pipeline.run()  # to train on
                batches += 1
        except StopIteration:
            pipeline.reset()
        shape = [len(images), *images[0].shape()]
        print(f"epoch {epoch}: {batches} batches of {shape} on the {'GPU' if gpu else 'host'}")


if __name__ == "__main__":
    main()
