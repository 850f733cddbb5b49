#include "codec/contexts.h"

#include <libdeflate.h>
#include <zstd.h>

#include <memory>
#include <string>

#include "headrace/error.h"

namespace headrace {
namespace {

template <auto Free>
struct FreeWith {
  template <typename T>
  void operator()(T* p) const {
    Free(p);
  }
};

template <typename T>
T& checked(T* p, const char* library) {
  if (p != nullptr) return *p;
  throw Error(ErrorCode::out_of_memory,
              std::string(library) + " cannot allocate its working memory");
}

}  // namespace

ZSTD_DCtx_s& zstd_decompress_context() {
  thread_local std::unique_ptr<ZSTD_DCtx, FreeWith<ZSTD_freeDCtx>> context;
  if (!context) context.reset(ZSTD_createDCtx());
  return checked(context.get(), "libzstd");
}

ZSTD_CCtx_s& zstd_compress_context() {
  thread_local std::unique_ptr<ZSTD_CCtx, FreeWith<ZSTD_freeCCtx>> context;
  if (!context) context.reset(ZSTD_createCCtx());
  return checked(context.get(), "libzstd");
}

libdeflate_decompressor& deflate_decompressor() {
  thread_local std::unique_ptr<libdeflate_decompressor, FreeWith<libdeflate_free_decompressor>>
      kept;
  if (!kept) kept.reset(libdeflate_alloc_decompressor());
  return checked(kept.get(), "libdeflate");
}

libdeflate_compressor& deflate_compressor(int level) {
  thread_local std::unique_ptr<libdeflate_compressor, FreeWith<libdeflate_free_compressor>> kept;
  thread_local int kept_level = -1;
  if (!kept || kept_level != level) {
    kept.reset(libdeflate_alloc_compressor(level));
    kept_level = level;
  }
  return checked(kept.get(), "libdeflate");
}

}  // namespace headrace
