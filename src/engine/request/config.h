#pragma once

#include <memory>

#include "headrace/codec.h"
#include "headrace/config.h"

namespace headrace {

// Which implementation serves a codec: the configuration's, over it the handle's, over it the
// call's.
Implementations merged_implementations(const Implementations& handle, const Implementations& call);

// Each pair names a row of the table of codecs; invalid_argument otherwise, naming what there is.
void check_implementations(const Implementations& implementations, const char* where);

// What config() copies, as it is now; never null.
std::shared_ptr<const Config> current_config();

// Bytes of scratch for one request.
std::size_t memory_budget(const Config& config);

// What may be kept of files in memory for devices; 0 when nothing is (device/mapped_files.h).
std::size_t mapped_nbytes(const Config& config);

// The configuration that the environment asks for. Reads it anew at each call.
Config config_from_environment();

}  // namespace headrace
