#pragma once

// Items of a write that go through the device together:
//  1. start() gives its queue what puts the elements together, and what encodes them. Elements that
//     the host encodes are on their way to pinned memory, too.
//  2. finish() waits for that: then the sizes are known, and the encoded bytes are copied.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "device/backend.h"
#include "engine/device/encode.h"
#include "engine/device/placement.h"
#include "engine/device/write_items.h"
#include "engine/request/stored_array.h"

namespace headrace {

class WriteSlab {
 public:
  // All must outlive it. `fill`: an element, memory of the device.
  WriteSlab(const StoredArray& array,
            Backend& backend,
            Queue& queue,
            int index,
            const std::uint8_t* fill);

  void start(std::vector<WriteItem> items, std::uint32_t zstd_block_nbytes);
  // In place of it: one chunk of the fill value.
  void start_fill(std::uint32_t zstd_block_nbytes);
  // The items, with what they are in pinned memory. `device` where an encoder failed.
  std::vector<WriteItem> finish();

 private:
  void gather();
  void add_fill(PlacementList& fills, std::uint8_t* target) const;
  void download_elements();
  void encode(std::uint32_t zstd_block_nbytes);
  void download_encoded();
  template <typename Nbytes>
  void reserve_pinned(Nbytes nbytes_of);
  std::size_t encoded_nbytes(const WriteItem& item, std::size_t n) const;

  const StoredArray& array_;
  const ArrayLayout& layout_;
  const EncodePlan& plan_;
  Backend& backend_;
  const Kernels& kernels_;
  Queue& queue_;
  const int index_;
  const std::uint8_t* const fill_;

  std::vector<WriteItem> items_;
  Scratch<std::uint8_t> decoded_;
  std::vector<WriteItem*> encoded_;       // those of the device
  std::optional<DeviceEncoder> encoder_;  // null: they are stored as they are put together
  Pinned sizes_;                          // once `started_`: of each of `encoded_`
  std::unique_ptr<Mark> started_;
};

// Decoded, or of elements.
std::size_t decoded_nbytes(const WriteItem& item, const ArrayLayout& layout);

}  // namespace headrace
