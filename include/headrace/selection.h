#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "headrace/tensor.h"

#pragma GCC visibility push(default)
namespace headrace {

// start:stop:step as in Python, negative values included.
struct Slice {
  std::optional<std::int64_t> start;
  std::optional<std::int64_t> stop;
  std::int64_t step = 1;
};

struct NewAxis {};
struct Ellipsis {};

// Integer indices, negative ones counting from the end, of the given shape.
struct IndexArray {
  std::vector<std::int64_t> indices;
  Shape shape;
};

// A boolean mask over one dimension (orthogonal) or the whole array (coordinate).
struct Mask {
  std::vector<std::uint8_t> values;
  Shape shape;
};

using SelectionItem = std::variant<std::int64_t, Slice, NewAxis, Ellipsis, IndexArray, Mask>;

enum class SelectionMode : std::uint8_t {
  basic,       // integers, slices, NewAxis, Ellipsis: a[...]
  orthogonal,  // one index set a dimension, their outer product: a.oindex[...]
  coordinate,  // points, index arrays broadcast against each other, or one mask: a.vindex[...]
  block,       // integers and slices count stored chunks (shards): a.blocks[...]
};

// What part of an array is meant. An empty basic selection is the whole array.
class Selection {
 public:
  Selection() = default;
  Selection(std::initializer_list<SelectionItem> items) : items_(items) {}
  explicit Selection(std::vector<SelectionItem> items, SelectionMode mode = SelectionMode::basic)
      : items_(std::move(items)), mode_(mode) {}

  static Selection orthogonal(std::vector<SelectionItem> items) {
    return Selection(std::move(items), SelectionMode::orthogonal);
  }
  static Selection coordinate(std::vector<SelectionItem> items) {
    return Selection(std::move(items), SelectionMode::coordinate);
  }
  static Selection blocks(std::vector<SelectionItem> items) {
    return Selection(std::move(items), SelectionMode::block);
  }

  const std::vector<SelectionItem>& items() const { return items_; }
  SelectionMode mode() const { return mode_; }

 private:
  std::vector<SelectionItem> items_;
  SelectionMode mode_ = SelectionMode::basic;
};

inline constexpr Slice all{};
inline constexpr NewAxis newaxis{};
inline constexpr Ellipsis ellipsis{};

inline Slice slice(std::int64_t start, std::int64_t stop, std::int64_t step = 1) {
  return {start, stop, step};
}

}  // namespace headrace
#pragma GCC visibility pop
