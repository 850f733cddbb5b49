#include "loader/permutation.h"

#include <bit>

namespace headrace::loader {
namespace {

constexpr unsigned kRounds = 6;

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014).
std::uint64_t scramble(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

}  // namespace

std::uint64_t mix(std::initializer_list<std::uint64_t> values) {
  std::uint64_t mixed = 0;
  for (const std::uint64_t value : values) mixed = scramble(mixed + 0x9e3779b97f4a7c15 + value);
  return mixed;
}

Permutation::Permutation(std::int64_t size, std::uint64_t key)
    : size_(static_cast<std::uint64_t>(size)), key_(key) {
  const int bits = size_ < 2 ? 1 : static_cast<int>(std::bit_width(size_ - 1));
  half_bits_ = static_cast<unsigned>((bits + 1) / 2);
}

std::int64_t Permutation::operator()(std::int64_t i) const {
  std::uint64_t value = forward(static_cast<std::uint64_t>(i));
  while (value >= size_) value = forward(value);
  return static_cast<std::int64_t>(value);
}

std::int64_t Permutation::inverse(std::int64_t i) const {
  std::uint64_t value = backward(static_cast<std::uint64_t>(i));
  while (value >= size_) value = backward(value);
  return static_cast<std::int64_t>(value);
}

std::uint64_t Permutation::round(std::uint64_t half, unsigned number) const {
  return scramble(key_ + (half << 3 | number) * 0x9e3779b97f4a7c15) >> (64 - half_bits_);
}

std::uint64_t Permutation::forward(std::uint64_t value) const {
  std::uint64_t left = value >> half_bits_, right = value ^ left << half_bits_;
  for (unsigned i = 0; i < kRounds; ++i) {
    const std::uint64_t next = left ^ round(right, i);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::uint64_t Permutation::backward(std::uint64_t value) const {
  std::uint64_t left = value >> half_bits_, right = value ^ left << half_bits_;
  for (unsigned i = kRounds; i-- > 0;) {
    const std::uint64_t before = right ^ round(left, i);
    right = left;
    left = before;
  }
  return left << half_bits_ | right;
}

}  // namespace headrace::loader
