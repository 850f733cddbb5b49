#include "store/reference/parquet_references.h"

#include "headrace/error.h"

namespace headrace {

std::unique_ptr<References> open_parquet_references(const std::string& place,
                                                    const StorageOptions&) {
  throw Error(ErrorCode::unsupported,
              place + ": references in Parquet files are not read natively; in Python fsspec does");
}

}  // namespace headrace
