#pragma once

#include <cstdint>

namespace headrace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() { return mix(state_++); }
  // Below `n`, which is not 0.
  unsigned below(unsigned n) { return static_cast<unsigned>((next() >> 32) * n >> 32); }

 private:
  std::uint64_t state_;
};

}  // namespace headrace
