#pragma once

#include <cstdint>
#include <initializer_list>

namespace headrace::loader {

// One number of several, each of which changes it all.
std::uint64_t mix(std::initializer_list<std::uint64_t> values);

// A bijection of [0, size) that a key chooses, computed at any point in constant time and memory: a
// Feistel network (Luby and Rackoff 1988) over the next even number of bits, walked until it comes
// back into the range (Black and Rogaway 2002).
class Permutation {
 public:
  Permutation(std::int64_t size, std::uint64_t key);

  std::int64_t operator()(std::int64_t i) const;
  std::int64_t inverse(std::int64_t i) const;

 private:
  std::uint64_t forward(std::uint64_t value) const;
  std::uint64_t backward(std::uint64_t value) const;
  std::uint64_t round(std::uint64_t half, unsigned number) const;

  std::uint64_t size_;
  std::uint64_t key_;
  unsigned half_bits_;
};

}  // namespace headrace::loader
