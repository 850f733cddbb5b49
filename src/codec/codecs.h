#pragma once

// The factories that the table in registry.cpp lists, one a body.

#include "codec/codec.h"

namespace headrace {

CodecPtr make_bytes(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_transpose(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_zstd(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_blosc(const CodecSpec& spec, const CodecSite& site);
CodecPtr make_c_blosc(const CodecSpec& spec, const CodecSite& site);

}  // namespace headrace
