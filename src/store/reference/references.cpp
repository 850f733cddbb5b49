#include "store/reference/references.h"

#include <algorithm>
#include <utility>

#include "store/reference/targets.h"

namespace headrace {
namespace {

class TableReferences : public References {
 public:
  explicit TableReferences(std::shared_ptr<const ReferenceTable> table)
      : table_(std::move(table)) {}

  std::optional<Reference> find(std::string_view key) override {
    const auto found = table_->find(key);
    if (!found) return std::nullopt;
    Reference reference;
    reference.is_inline = found->is_inline;
    reference.owner = table_;
    if (found->is_inline) {
      reference.bytes = found->bytes;
    } else {
      reference.url = table_->url(found->range.url);
      reference.offset = found->range.offset;
      reference.nbytes = found->range.nbytes;
    }
    return reference;
  }
  std::vector<std::string> list(std::string_view prefix) override { return table_->list(prefix); }
  std::vector<DirEntry> list_dir(std::string_view prefix) override {
    return table_->list_dir(prefix);
  }
  std::optional<bool> has_remote_urls() override {
    const auto& urls = table_->urls();
    return std::any_of(
        urls.begin(), urls.end(), [](const std::string& url) { return is_remote_url(url); });
  }

 private:
  std::shared_ptr<const ReferenceTable> table_;
};

}  // namespace

std::unique_ptr<References> references_of(std::shared_ptr<const ReferenceTable> table) {
  return std::make_unique<TableReferences>(std::move(table));
}

}  // namespace headrace
