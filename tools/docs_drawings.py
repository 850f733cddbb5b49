"""The drawings of docs/assets: boxes one below the other, what each does, and what it is called.

    python tools/docs_drawings.py          # writes docs/assets/*.svg anew

They are narrow enough for a phone. In the site they are part of the page and take the colours of
its palette; elsewhere (README.md in a browser of repositories) those of the reader's system.
"""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path

ASSETS = Path(__file__).resolve().parent.parent / "docs" / "assets"

WIDTH, PAD, LINE, GAP = 480, 12, 17, 24  # of the drawing, in a box, of text, between boxes
STYLE = """
.hr{--ink:var(--md-default-fg-color,#1f2933);--dim:var(--md-default-fg-color--light,#52616f);
--box:var(--hr-soft,#eef2f6);--edge:var(--hr-line,#5b6b7a);--lead:var(--hr-ours,#c23b57)}
@media (prefers-color-scheme:dark){.hr{--ink:var(--md-default-fg-color,#e4e9ee);
--dim:var(--md-default-fg-color--light,#a9b5c0);--box:var(--hr-soft,#1d2a36);
--edge:var(--hr-line,#8fa0b0);--lead:var(--hr-ours,#f2708a)}}
.hr text{font:13px system-ui,sans-serif;fill:var(--dim)}
.hr .what{font-weight:600;font-size:14px;fill:var(--ink)}
.hr .call{font:12px ui-monospace,monospace;text-anchor:end;fill:var(--dim)}
.hr .box{fill:var(--box);stroke:var(--edge);stroke-width:1}
.hr .end{stroke:var(--lead);stroke-width:1.6}
.hr .way{stroke:var(--edge);stroke-width:1.4;fill:none}
.hr .tip{fill:var(--edge)}
"""


@dataclass
class Box:
    what: str
    says: tuple[str, ...] = ()
    call: str = ""  # its name in the code
    end: bool = False  # where it begins, or what comes out

    @property
    def height(self) -> int:
        return 2 * PAD - 4 + LINE * (1 + len(self.says))


@dataclass
class Beside:
    """Boxes side by side: what is done in either order, or in one of two ways."""

    boxes: tuple[Box, ...]

    @property
    def height(self) -> int:
        return max(box.height for box in self.boxes)


def _box(box: Box, x: float, y: float, width: float, height: float) -> str:
    end = " end" if box.end else ""
    size = f'width="{width:g}" height="{height:g}"'
    parts = [
        f'<rect class="box{end}" x="{x:g}" y="{y:g}" {size} rx="6"/>',
        f'<text class="what" x="{x + PAD:g}" y="{y + PAD + 11:g}">{html.escape(box.what)}</text>',
    ]
    if box.call:
        at = f'x="{x + width - PAD:g}" y="{y + PAD + 11:g}"'
        parts.append(f'<text class="call" {at}>{html.escape(box.call)}</text>')
    for number, line in enumerate(box.says, 1):
        at = f'x="{x + PAD:g}" y="{y + PAD + 11 + LINE * number:g}"'
        parts.append(f"<text {at}>{html.escape(line)}</text>")
    return "".join(parts)


def _arrow(x: float, y: float) -> str:
    """Down from one box to the next."""
    return (
        f'<path class="way" d="M{x:g} {y + 2:g}V{y + GAP - 7:g}"/>'
        f'<path class="tip" d="M{x - 4.5:g} {y + GAP - 9:g}h9l-4.5 8z"/>'
    )


def draw(label: str, steps: list[Box | Beside]) -> str:
    y, parts = 1.0, []
    for number, step in enumerate(steps):
        boxes = step.boxes if isinstance(step, Beside) else (step,)
        width = (WIDTH - 2 - 12 * (len(boxes) - 1)) / len(boxes)
        centres = []
        for at, box in enumerate(boxes):
            x = 1 + at * (width + 12)
            centres.append(x + width / 2)
            parts.append(_box(box, x, y, width, step.height))
        y += step.height
        if number + 1 < len(steps):
            after = steps[number + 1]
            if isinstance(after, Beside) and len(boxes) == 1:
                half = (WIDTH - 2 - 12) / 2
                centres = [1 + half / 2, 1 + half * 1.5 + 12]
            parts += [_arrow(x, y) for x in centres]
            y += GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="hr" viewBox="0 0 {WIDTH} {y + 1:g}" '
        f'width="{WIDTH}" height="{y + 1:g}" role="img" aria-label="{html.escape(label)}">'
        f"<style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


PIPELINE = draw(
    "Chunks of a store are fetched, decoded and placed into the caller's memory",
    [
        Box(
            "Store",
            ("a folder, a zip file, memory, https, s3, gs, az", "Zarr v2 and v3, chunks or shards"),
            end=True,
        ),
        Box("Fetch", ("only what is wanted; neighbours together, many at a time",)),
        Box("Decode", ("on all cores, or by a GPU's own kernels",)),
        Box("Place", ("straight into the result, strided, each piece once",)),
        Box("Your memory", ("NumPy, out=, DLPack: PyTorch, JAX, CuPy; host or cuda:0",), end=True),
    ],
)
READ = draw(
    "A selection becomes a query, is cut by the grid of chunks, and its pieces reach the caller",
    [
        Box("Selection", ("what the caller wrote",), "public", end=True),
        Box("ResolvedSelection", ("indices, a dimension each",), "format/"),
        Box("Box, or Points", ("the query: an outer product, or a list",), "query/"),
        Box("Cut", ("by the grid of chunks, then by that of each shard",), "query/"),
        Box("ObjectReader", ("bytes of stored objects; neighbours as one run",), "store/"),
        Box("CodecChain", ("decodes, as far as anything is wanted",), "codec/"),
        Box("ChunkSink", ("knows which bytes are wanted, and where each goes",), "query/"),
        Box("The caller's memory", end=True),
    ],
)
LOADER = draw(
    "From a position in the epoch to a batch",
    [
        Box(
            "Position in the epoch: 17",
            ("one number for all ranks: with the epoch, all of a checkpoint",),
            end=True,
        ),
        Box("Sample number: 4711", ("computed, not walked: first step, patch, source",), "order.h"),
        Box("Need[]", ("a chunk, and the parts that the batch takes of it",), "needs.h"),
        Box(
            "Decoded chunks",
            ("those that are there, and the rest: whole, many in one plan",),
            "chunk_cache.h",
        ),
        Box("Batch", ("gather: cast, normalise, place, in one pass",), "BatchMemory"),
        Box("next()", ("a thread makes batches ahead, and reads on",), "session.h", end=True),
    ],
)
ZSTD = draw(
    "How zstd is decoded on a device",
    [
        Box("Sources", ("encoded bytes on the device, padded",), end=True),
        Box(
            "Headers",
            ("a thread a source; or several threads of the host", "Source[], Frame[], Block[]"),
            "Plan::memory",
        ),
        Beside(
            (
                Box("Sequences", ("a lane a block leads", "Record[], BlockResult[]")),
                Box("Literals", ("a CTA a block: table,", "then a warp a stream")),
            )
        ),
        Box("Place", ("a warp a source: a scan; PlacedBlock[]",), "Stages::placed"),
        Beside(
            (
                Box("Execute in order", ("a CTA a source, tile by tile,", "in shared memory")),
                Box("or by jumps", ("a CTA a tile, then a chase:", "4 bytes a byte")),
            )
        ),
        Box("Targets", ("decoded bytes",), "the caller's", end=True),
        Box("Checksum", ("a warp a frame that has one: XXH64",)),
    ],
)
DRAWINGS = {"pipeline": PIPELINE, "read": READ, "loader": LOADER, "zstd": ZSTD}


def main() -> None:
    ASSETS.mkdir(exist_ok=True)
    for name, drawing in DRAWINGS.items():
        (ASSETS / f"{name}.svg").write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    main()
