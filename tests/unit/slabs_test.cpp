#include "cli/slabs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "cli/selection_text.h"
#include "headrace/headrace.h"

namespace headrace::cli {
namespace {

Array counting_array() {
  CreateOptions options;
  options.shape = {9, 7, 11};
  options.chunks = {2, 3, 4};
  options.dtype = DType::int32;
  const Array array = create_array(memory_store(), "", options);
  std::vector<std::int32_t> values(9 * 7 * 11);
  std::iota(values.begin(), values.end(), 0);
  array.write({}, TensorView{values.data(), {9, 7, 11}, {}, DType::int32, Device::cpu()});
  return array;
}

std::vector<std::int32_t> elements(const Tensor& tensor) {
  std::vector<std::int32_t> result(tensor.view().size());
  if (!result.empty()) std::memcpy(result.data(), tensor.data(), tensor.nbytes());
  return result;
}

constexpr const char* kSelections[] = {"",
                                       "2:8",
                                       "::-1",
                                       "...,::-3",
                                       "4,1:6:2",
                                       "8::-2,:,3",
                                       "None,2:3,:,::2",
                                       ":,-1",
                                       "3:3",
                                       "-2:-20:-1,...",
                                       "0,0,0"};

TEST(Slabs, AreTheWholeInCOrder) {
  const Array array = counting_array();
  for (const char* text : kSelections) {
    const auto items = parse_selection(text);
    const auto whole = elements(array.read(Selection(items)));
    for (const std::size_t limit : {4, 60, 200, 1000, 100000}) {
      std::vector<std::int32_t> parts;
      for_each_slab(array, items, limit, SlabOrder::c, [&](const Tensor& slab) {
        EXPECT_LE(slab.nbytes(), limit) << text;
        const auto part = elements(slab);
        parts.insert(parts.end(), part.begin(), part.end());
      });
      EXPECT_EQ(parts, whole) << '"' << text << "\" in parts of " << limit;
    }
  }
}

TEST(Slabs, AreEveryElementOnceInAnyOrder) {
  const Array array = counting_array();
  for (const char* text : kSelections) {
    const auto items = parse_selection(text);
    auto whole = elements(array.read(Selection(items)));
    std::sort(whole.begin(), whole.end());
    for (const std::size_t limit : {4, 60, 200, 1000, 100000}) {
      std::vector<std::int32_t> parts;
      std::size_t largest = 0;
      for_each_slab(array, items, limit, SlabOrder::anyhow, [&](const Tensor& slab) {
        largest = std::max(largest, slab.nbytes());
        const auto part = elements(slab);
        parts.insert(parts.end(), part.begin(), part.end());
      });
      std::sort(parts.begin(), parts.end());
      EXPECT_EQ(parts, whole) << '"' << text << "\" in parts of " << limit;
      EXPECT_LE(largest, std::max<std::size_t>(limit, 2 * 3 * 4 * 4));  // a chunk is not cut
    }
  }
}

TEST(Slabs, RefuseWhatTheArrayRefuses) {
  const Array array = counting_array();
  const auto ignore = [](const Tensor&) {};
  EXPECT_THROW(for_each_slab(array, parse_selection("9"), 100, SlabOrder::c, ignore), Error);
  EXPECT_THROW(for_each_slab(array, parse_selection("0,0,0,0"), 100, SlabOrder::c, ignore), Error);
}

}  // namespace
}  // namespace headrace::cli
