#pragma once

// References by key, whichever file they come from.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "store/reference/table.h"
#include "store/store.h"

namespace headrace {

struct Reference {
  bool is_inline = false;
  ConstBytes bytes{};      // where it is
  std::string_view url{};  // where it is not; "": the one of the option "target"
  std::uint64_t offset = 0;
  std::uint64_t nbytes = ObjectRange::kWhole;
  std::shared_ptr<const void> owner{};  // keeps `bytes` and `url` where they are
};

// Any thread calls any method.
class References {
 public:
  virtual ~References() = default;

  virtual std::optional<Reference> find(std::string_view key) = 0;
  virtual std::vector<std::string> list(std::string_view prefix) = 0;
  virtual std::vector<DirEntry> list_dir(std::string_view prefix) = 0;
  // Whether a URL has a scheme that is not of this machine; nothing: it is not known.
  virtual std::optional<bool> has_remote_urls() = 0;
};

std::unique_ptr<References> references_of(std::shared_ptr<const ReferenceTable> table);

}  // namespace headrace
