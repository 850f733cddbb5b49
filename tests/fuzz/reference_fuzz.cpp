// Any bytes as references: as JSON of kerchunk in parts of a size that the first byte gives, and as
// a partition in Parquet.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fuzz_check.h"
#include "store/reference/kerchunk_json.h"
#include "store/reference/parquet_file.h"

using namespace headrace;
using namespace headrace::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  if (text_of(bytes).starts_with("PAR1")) {
    attempt([&] {
      constexpr std::array<std::string_view, 4> kWanted = {"path", "offset", "size", "raw"};
      const ParquetTable table = read_parquet(bytes, "x", kWanted, 1 << 20);
      for (const ParquetColumn& column : table.columns) {
        for (const std::uint32_t row : column.rows) {
          check(row == ParquetColumn::kNull || row < column.values.size());
        }
      }
    });
    return 0;
  }
  attempt([&] {
    const std::string_view text = text_of(bytes.subspan(1));
    const std::size_t part = data[0] % 16 == 0 ? 4096 : data[0] % 16;
    const auto table = read_kerchunk_json(
        [source = source_of(text), part](MutableBytes into) mutable {
          return source(into.first(std::min(part, into.size())));
        },
        "x",
        {},
        {.references = 1 << 10, .nbytes = 1 << 20, .work = 1 << 20});
    const auto keys = table->list("");
    check(keys.size() == table->size());
    for (const std::string& key : keys) check(table->find(key).has_value());
    table->list_dir("");
  });
  return 0;
}
