#pragma once

// The libraries' working memory, one a thread, made at first use and kept: a new one costs more
// than a small chunk.

struct ZSTD_DCtx_s;
struct ZSTD_CCtx_s;
struct libdeflate_compressor;
struct libdeflate_decompressor;

namespace headrace {

ZSTD_DCtx_s& zstd_decompress_context();
ZSTD_CCtx_s& zstd_compress_context();
libdeflate_decompressor& deflate_decompressor();
libdeflate_compressor& deflate_compressor(int level);  // the one of the last level is kept

}  // namespace headrace
