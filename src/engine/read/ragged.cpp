#include "engine/read/ragged.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/read/to_host.h"

namespace headrace {
namespace {

// What a thread does at a time: so many elements are counted, so many bytes copied.
constexpr std::size_t kElements = std::size_t{1} << 16;
constexpr std::size_t kNbytes = std::size_t{1} << 20;

using Elements = std::span<const VlenElement>;

std::size_t parts(std::size_t n, std::size_t of) { return n / of + (n % of != 0 ? 1 : 0); }

std::size_t checked_sum(std::size_t a, std::size_t b) {
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  if (a <= kMost && b <= kMost - a) return a + b;
  throw Error(ErrorCode::out_of_memory,
              "[read_ragged] elements of more than 2^63 bytes together, read a part of them");
}

class Packer {
 public:
  // `unit`: elements have a multiple of so many bytes.
  Packer(Elements elements, std::size_t unit, Request& request)
      : elements_(elements), unit_(unit), request_(request) {}

  Tensor offsets() {
    const std::size_t n = parts(elements_.size(), kElements);
    std::vector<std::size_t> starts(n + 1);  // in bytes, of the elements of each turn
    each(n, [&](std::size_t i) { starts[i + 1] = nbytes_of(i); });
    for (std::size_t i = 0; i < n; ++i) starts[i + 1] = checked_sum(starts[i], starts[i + 1]);
    nbytes_ = starts[n];

    Tensor tensor = Tensor::empty({static_cast<std::int64_t>(elements_.size()) + 1}, DType::int64);
    offsets_ = static_cast<std::int64_t*>(tensor.data());
    offsets_[0] = 0;
    each(n, [&](std::size_t i) {
      std::size_t at = starts[i];
      std::int64_t* next = offsets_ + i * kElements;
      for (const VlenElement& element : part(i)) {
        at += element.nbytes;
        *++next = static_cast<std::int64_t>(at / unit_);
      }
    });
    return tensor;
  }

  // Behind offsets().
  Tensor values(const DType& item) {
    Tensor tensor = Tensor::empty({static_cast<std::int64_t>(nbytes_ / unit_)}, item);
    auto* const data = static_cast<std::byte*>(tensor.data());
    // By bytes: one element may be longer than all others.
    each(parts(nbytes_, kNbytes),
         [&](std::size_t i) { copy(data, i * kNbytes, std::min(nbytes_, (i + 1) * kNbytes)); });
    return tensor;
  }

 private:
  template <typename Body>
  void each(std::size_t n, Body body) {
    const auto turn = [&](std::size_t i) {
      request_.check();
      body(i);
    };
    request_.parallel(n, turn, 0);
  }

  Elements part(std::size_t i) const {
    const std::size_t first = i * kElements;
    return elements_.subspan(first, std::min(kElements, elements_.size() - first));
  }

  std::size_t nbytes_of(std::size_t i) const {
    std::size_t nbytes = 0;
    for (const VlenElement& element : part(i)) {
      if (element.nbytes % unit_ != 0) {
        throw Error(ErrorCode::corrupt,
                    "[read_ragged] an element of " + std::to_string(element.nbytes) +
                        " bytes, items have " + std::to_string(unit_));
      }
      nbytes = checked_sum(nbytes, element.nbytes);
    }
    return nbytes;
  }

  // The bytes from `at` to `end` of the result.
  void copy(std::byte* data, std::size_t at, std::size_t end) const {
    const auto item = static_cast<std::int64_t>(at / unit_);
    const std::int64_t* const behind =
        std::upper_bound(offsets_, offsets_ + elements_.size() + 1, item);
    for (auto i = static_cast<std::size_t>(behind - offsets_ - 1); at < end; ++i) {
      const VlenElement& element = elements_[i];
      const std::size_t skipped = at - static_cast<std::size_t>(offsets_[i]) * unit_;
      const std::size_t nbytes = std::min(element.nbytes - skipped, end - at);
      if (nbytes > 0) std::memcpy(data + at, element.data + skipped, nbytes);
      at += nbytes;
    }
  }

  const Elements elements_;
  const std::size_t unit_;
  Request& request_;
  std::size_t nbytes_ = 0;
  std::int64_t* offsets_ = nullptr;
};

}  // namespace

RaggedTensor pack_ragged(const TensorView& elements, Request& request) {
  const DType& dtype = elements.dtype;
  const DType item = dtype.kind() == DType::Kind::array ? dtype.item() : DType::uint8;
  Packer packer(
      {static_cast<const VlenElement*>(elements.data), elements.size()}, item.itemsize(), request);
  RaggedTensor result{elements.shape, dtype, packer.offsets(), {}};
  result.values = packer.values(item);
  return result;
}

RaggedTensor read_ragged_selection(const ArrayState& state,
                                   std::shared_ptr<const ArrayLayout> layout,
                                   const ResolvedSelection& selection,
                                   const ReadOptions& options) {
  const Tensor elements = read_vlen_selection(state, std::move(layout), selection, options);
  Request request(options, nullptr);
  return pack_ragged(elements.view(), request);
}

}  // namespace headrace
