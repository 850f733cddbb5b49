#pragma once

// Parquet, as far as fastparquet and pyarrow write it for tables of references: flat columns of
// bytes and whole numbers, plain or by a dictionary, pages of version 1 and 2, uncompressed, snappy
// or zstd. `unsupported` for the rest, `corrupt` for what is none.
// https://parquet.apache.org/docs/file-format/

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace headrace {

struct ParquetColumn {
  static constexpr std::uint32_t kNull = UINT32_MAX;

  std::string name{};
  bool is_bytes = false;
  std::vector<std::int64_t> numbers{};  // 0 where there is none
  std::vector<std::string> values{};
  std::vector<std::uint32_t> rows{};  // of each row its value, or kNull
};

struct ParquetTable {
  std::uint64_t rows = 0;
  std::vector<ParquetColumn> columns{};

  const ParquetColumn* find(std::string_view name) const;
  std::size_t nbytes() const;  // of memory
};

// Of the file's columns `wanted`, those that it has. `corrupt` too for more than `max_rows`: a
// hundred bytes may say that they are millions.
ParquetTable read_parquet(ConstBytes file,
                          const std::string& name,
                          std::span<const std::string_view> wanted,
                          std::uint64_t max_rows);

}  // namespace headrace
