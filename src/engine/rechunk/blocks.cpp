#include "engine/rechunk/blocks.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace headrace {

std::vector<std::int64_t> block_nbytes(const RechunkPass& pass, std::size_t itemsize) {
  std::vector<std::int64_t> nbytes = {static_cast<std::int64_t>(itemsize)};
  for (const Shape& sizes : pass.block_sizes) {
    std::vector<std::int64_t> next;
    for (const std::int64_t n : nbytes) {
      for (const std::int64_t extent : sizes) next.push_back(n * extent);
    }
    nbytes = std::move(next);
  }
  return nbytes;
}

TensorView BlockMemory::read(const Array& array,
                             const Selection& block,
                             const ReadOptions& options) {
  if (array.dtype().variable_length()) {
    strings_ = array.read(block, options);
    return strings_->view();
  }
  TensorView view{nullptr, array.result_shape(block), {}, array.dtype(), Device::cpu()};
  memory_.resize(std::max(room_nbytes_, view.size() * view.dtype.itemsize()));
  view.data = memory_.data();
  array.read_into(block, view, options);
  return view;
}

bool same_elements(const TensorView& a, const TensorView& b) {
  if (!a.dtype.variable_length()) {
    const std::size_t nbytes = a.size() * a.dtype.itemsize();
    return nbytes == 0 || std::memcmp(a.data, b.data, nbytes) == 0;
  }
  const auto* left = static_cast<const VlenElement*>(a.data);
  const auto* right = static_cast<const VlenElement*>(b.data);
  return std::equal(left, left + a.size(), right, [](const auto& x, const auto& y) {
    return x.text() == y.text();
  });
}

std::string text_of(const Selection& block) {
  std::string text;
  for (const SelectionItem& item : block.items()) {
    const auto& range = std::get<Slice>(item);
    text += (text.empty() ? "" : ", ") + std::to_string(*range.start) + ':' +
            std::to_string(*range.stop);
  }
  return '[' + text + ']';
}

}  // namespace headrace
