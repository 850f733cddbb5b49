"""The tables of src/kernels/README.md: what each kernel of a decode, or of an encode, takes, by
headrace_device_bench --stages, and what its time depends on."""

import pages
from device.table import shape_name, shape_of

# By codec and struct: the grid in words, and what binds the kernel. A kernel that is launched and
# not described here stops the table.
ZSTD = {
    "DecodeEntropy<SequenceDecoder<WideEntries, 1>>": (
        "a CTA a block with sequences, then one a block with literals; up to 600 blocks",
        "latency of the sequence chain",
    ),
    "DecodeEntropy<SequenceDecoder<WideEntries, 2>>": (
        "half as many for sequences; up to 2,500 blocks",
        "the chain, then shared memory for tables",
    ),
    "DecodeSequences": ("a CTA for 4 blocks; more blocks", "issue slots of the leaders"),
    "DecodeLiterals": ("a CTA a block; more blocks", "look-ups and window loads"),
    "PlaceBlocks": ("a warp a source", "the launch"),
    "ExecuteInOrder": ("a CTA a source", "latency of one CTA; with many, instructions"),
    "ExpandTiles": ("a CTA for 16 KiB of a block", "shared memory"),
    "ChaseEntries": ("a CTA for 1,024 bytes", "latency of loads from the L2 cache"),
    "VerifyChecksums": ("a warp a frame that has one", "the bytes of the longest frame"),
}
LZ = {
    "LzGuess": ("a warp for 21 segments", "rounds until lanes agree"),
    "LzMap": ("a warp a group", "bytes of source, whatever they are"),
    "LzLink": ("a warp a stream", "groups of the longest stream"),
    "LzCount": ("a warp a group", "bytes of source"),
    "LzJoin": ("a warp a stream", "groups that have to be repaired"),
    "LzWrite": ("a warp a group", "walks tokens once more"),
    "LzPut": ("a warp a group", "bytes of source"),
    "LzScout": ("a lane a stream, for streams that hardly shrink", "latency of a token"),
    "LzCopyLiterals": ("a CTA for 16 KiB of such a stream", "memory"),
    "LzCopyMatches": ("a warp such a stream", "latency of 32 tokens"),
    "LzLead": ("a lane a stream, 8 a warp", "latency of a token"),
    "LzOrder": ("a CTA a stream", "latency of one CTA; with many, instructions"),
    "LzExpand": ("a CTA for 16 KiB", "shared memory"),
    "LzChase": ("4 CTAs for 16 KiB", "latency of loads from the L2 cache"),
}
BLOSC = {
    "CopyPieces": ("a CTA for 16 KiB of a stored stream", "memory"),
    "ShuffleWords": ("a CTA for 16 KiB", "memory"),
    "ShuffleTiles": ("a CTA a tile", "memory"),
}
DEFLATE = {
    "FindBlocks": ("a CTA a piece of a stream; few streams", "bits of source, each is tried"),
    "CheckDoubtful": ("a thread a header in doubt", "latency of a chain of 316 codes"),
    "CountFoundBlocks": ("as many CTAs as run at once", "blocks found by a CTA"),
    "DecodeStreams": ("a CTA a stream", "the blocks of a stream, one after the other"),
    "WriteFoundBlocks": ("as many CTAs as run at once", "blocks found by a CTA"),
    "ExpandInOrder": ("a CTA a stream", "latency of one CTA; with many, instructions"),
    "ExpandInTurns": ("a CTA a multiprocessor; some dozens of streams", "the tile before"),
    "ExpandTile": ("a CTA a tile of 16 KiB", "shared memory"),
    "ChaseBytes": ("a CTA for 1,024 bytes", "latency of loads from the L2 cache"),
    "SumSlices": ("a CTA a slice", "memory"),
    "Finish": ("a thread a source", "the launch"),
    "CompareChecksums": ("a thread a source", "the launch"),
}
UPLOADS = {"CopyFromHost": ("32 CTAs, for tables that the host made", "the bus")}
DECODERS = {
    "zstd-3": ZSTD | UPLOADS,
    "lz4": LZ | UPLOADS,
    "blosc-lz4": LZ | BLOSC | UPLOADS,
    "zlib-6": DEFLATE | UPLOADS,
}
FIND = ("a warp a segment", "waits for the table of hashes and the bytes that it leads to")
ENCODE_LZ4 = {
    "FindMatches": FIND,
    "LayOut": ("a warp a chunk", "the launch"),
    "Assemble": ("a CTA a segment", "memory"),
}
ENCODERS = {
    "encode-zstd": {
        "FindSequences": FIND,
        "SplitBlock": ("a CTA a block", "counts in shared memory"),
        "EncodeBlock": ("a CTA a block", "building the tables; with many, bits to be coded"),
        "PlaceEncoded": ("a warp a frame", "the launch"),
        "AssembleFrames": ("a CTA a block", "memory"),
    }
    | UPLOADS,
    "encode-lz4": ENCODE_LZ4 | UPLOADS,
    "encode-blosc-lz4": {
        "ShuffleWords": BLOSC["ShuffleWords"],
        **ENCODE_LZ4,
        "PlaceStreams": ("a warp a chunk", "the launch"),
        "CopyStreams": ("a CTA a stream", "memory"),
    }
    | UPLOADS,
}


def described(known: dict, codec: str, kernel: str) -> tuple[str, str]:
    found = known.get(kernel) or known.get(kernel.partition("<")[0])
    if found is None:
        raise ValueError(f"{codec} launches {kernel}, which bench/device/stages.py does not know")
    return found


def cell(launches: list[dict]) -> str:
    """Microseconds, and how many CTAs; over all launches, where a batch has parts."""
    if not launches:
        return "-"
    microseconds = sum(launch["microseconds"] for launch in launches)
    return f"{microseconds:,.0f} ({sum(launch['grid'] for launch in launches):,})"


def encode_table(result: dict) -> str:
    """Of the shapes of the other table."""
    shapes = ("1 x 4 MiB", "64 x 4 MiB", "512 x 4 MiB")
    rows = [
        row
        for row in result["rows"]
        if row["codec"] in ENCODERS
        and row["data"] == "packed"
        and shape_name(shape_of(row)) in shapes
    ]
    return table({**result, "rows": rows}, ENCODERS)


def table(result: dict, codecs: dict = DECODERS) -> str:
    wrong = [row for row in result["rows"] if row.get("wrong_chunks")]
    if wrong:
        raise ValueError(f"a result with wrong chunks: {wrong[0]['codec']} {shape_of(wrong[0])}")
    shapes = list(dict.fromkeys(map(shape_of, result["rows"])))
    body = []
    for codec in dict.fromkeys(row["codec"] for row in result["rows"]):
        rows = {shape_of(row): row for row in result["rows"] if row["codec"] == codec}
        launches = [launch for row in rows.values() for launch in row["launches"]]
        kernels = {launch["kernel"]: launch for launch in launches}
        known = codecs[codec]
        order = list(known)
        for kernel in sorted(kernels, key=lambda k: _place(order, k)):
            grid, binds = described(known, codec, kernel)
            of_shapes = [
                cell([launch for launch in rows[shape]["launches"] if launch["kernel"] == kernel])
                if shape in rows
                else "-"
                for shape in shapes
            ]
            threads, shared = kernels[kernel]["threads"], kernels[kernel]["shared_nbytes"]
            name = f"{codec} `{kernel}`"
            body.append([name, grid, str(threads), f"{shared:,}", *of_shapes, binds])
        whole = [f"**{rows[s]['microseconds']:,.0f}**" if s in rows else "-" for s in shapes]
        body.append([f"{codec}, the whole call", "", "", "", *whole, ""])
    seen = {launch["kernel"] for row in result["rows"] for launch in row["launches"]}
    every = {name: words for kernels in codecs.values() for name, words in kernels.items()}
    others = [
        f"`{name}` ({grid}; {binds})"
        for name, (grid, binds) in every.items()
        if not any(kernel.startswith(name) for kernel in seen)
    ]
    text = pages.table(
        f"Microseconds on one {result['device']}, in brackets CTAs: the median of "
        "seven runs, by an event before each kernel and one behind it. Where a batch is done in "
        "parts they are added up. The whole call is timed by itself, from planning to the end.",
        [
            "kernel",
            "a grid of",
            "threads",
            "shared memory, bytes",
            *map(shape_name, shapes),
            "binds",
        ],
        body,
        right=range(2, 4 + len(shapes)),
    )
    return f"{text}\n\nNot launched there: {', '.join(others)}." if others else text


def _place(order: list[str], kernel: str) -> tuple[int, str]:
    name = kernel if kernel in order else kernel.partition("<")[0]
    return (order.index(name) if name in order else len(order)), kernel
