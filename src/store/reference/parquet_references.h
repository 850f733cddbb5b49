#pragma once

#include <memory>
#include <string>

#include "headrace/store.h"
#include "store/reference/references.h"

namespace headrace {

// kerchunk's folder of Parquet files, each of which is read when a reference of it is wanted.
std::unique_ptr<References> open_parquet_references(const std::string& place,
                                                    const StorageOptions& options);

}  // namespace headrace
