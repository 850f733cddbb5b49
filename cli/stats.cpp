#include "cli/stats.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "cli/elements.h"
#include "cli/progress.h"
#include "cli/slabs.h"

namespace headrace::cli {
namespace {

constexpr std::size_t kSlabBytes = std::size_t{32} << 20;

// JSON has no infinities and no NaN: they go by their Zarr names.
Json number_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

template <typename T>
class Stats {
  // Integers keep all their digits; the small floats are compared as float.
  static constexpr bool kInteger = std::is_integral_v<T>;
  using Value = std::conditional_t<kInteger || std::is_same_v<T, double>, T, float>;

 public:
  void add(const std::byte* data, std::size_t n) {
    // Two passes over what is in the cache, then joined with what came before by Chan's formula:
    // https://doi.org/10.1080/00031305.1983.10483115
    constexpr std::size_t kBlock = 8192;
    for (std::size_t first = 0; first < n; first += kBlock) {
      add_block(data + first * sizeof(T), std::min(kBlock, n - first));
    }
  }

  Json json() const {
    Json result = {{"count", count_ + nan_count_}, {"nan_count", nan_count_}};
    const bool any = count_ > 0;
    result["min"] = any ? value_json(min_) : Json(nullptr);
    result["max"] = any ? value_json(max_) : Json(nullptr);
    result["mean"] = any ? number_json(mean_) : Json(nullptr);
    result["std"] =
        any ? number_json(std::sqrt(squares_ / static_cast<double>(count_))) : Json(nullptr);
    return result;
  }

 private:
  static Json value_json(Value value) {
    if constexpr (kInteger) {
      return value;
    } else {
      return number_json(static_cast<double>(value));
    }
  }

  void add_block(const std::byte* data, std::size_t n) {
    std::int64_t count = 0;
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const Value value = load_element<T>(data + i * sizeof(T));
      if constexpr (!kInteger) {
        if (std::isnan(value)) continue;
      }
      min_ = std::min(min_, value);
      max_ = std::max(max_, value);
      sum += static_cast<double>(value);
      ++count;
    }
    nan_count_ += static_cast<std::int64_t>(n) - count;
    if (count == 0) return;
    const double mean = sum / static_cast<double>(count);
    double squares = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const Value value = load_element<T>(data + i * sizeof(T));
      if constexpr (!kInteger) {
        if (std::isnan(value)) continue;
      }
      const double off = static_cast<double>(value) - mean;
      squares += off * off;
    }
    const auto before = static_cast<double>(count_);
    const auto added = static_cast<double>(count);
    const double off = mean - mean_;
    mean_ += off * added / (before + added);
    squares_ += squares + off * off * before * added / (before + added);
    count_ += count;
  }

  static constexpr Value kGreatest =
      kInteger ? std::numeric_limits<Value>::max() : std::numeric_limits<Value>::infinity();
  static constexpr Value kLeast =
      kInteger ? std::numeric_limits<Value>::lowest() : -std::numeric_limits<Value>::infinity();
  std::int64_t count_ = 0;
  std::int64_t nan_count_ = 0;
  Value min_ = kGreatest;
  Value max_ = kLeast;
  double mean_ = 0;
  double squares_ = 0;
};

}  // namespace

Json selection_stats(const Array& array, const std::vector<SelectionItem>& items) {
  const Shape shape = array.result_shape(Selection(items));
  const TensorView whole{nullptr, shape, {}, array.dtype(), Device::cpu()};
  Progress progress("read", static_cast<std::int64_t>(whole.size()));
  return with_number_type(array.dtype(), "statistics", [&](auto tag) {
    Stats<decltype(tag)> stats;
    for_each_slab(array, items, kSlabBytes, SlabOrder::anyhow, [&](const Tensor& slab) {
      stats.add(static_cast<const std::byte*>(slab.data()), slab.view().size());
      progress.advance(static_cast<std::int64_t>(slab.view().size()));
    });
    return stats.json();
  });
}

}  // namespace headrace::cli
