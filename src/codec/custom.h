#pragma once

#include <vector>

#include "codec/codec.h"
#include "headrace/custom_codec.h"

namespace headrace {

// The codec of the application; null when no provider knows it.
CodecPtr make_custom(const CodecSpec& spec, const CodecSite& site);

// What the providers know.
std::vector<CodecProvider::Entry> custom_codecs();

}  // namespace headrace
