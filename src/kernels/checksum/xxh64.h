#pragma once

// XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), by a warp. Four lanes
// hold an accumulator each; all others only load, and multiply what needs no accumulator.

#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

class Xxh64 {
 public:
  SIMT_DEVICE static u64 hash(const u8* p, u32 nbytes) {
    u64 sum = nbytes < kStripe ? kPrime5 : hash_stripes(p, nbytes / kStripe);
    sum += nbytes;
    for (u32 at = nbytes / kStripe * kStripe; at < nbytes;) {
      if (nbytes - at >= 8) {
        sum = rotate(sum ^ round(load(p + at, 8)), 27) * kPrime1 + kPrime4;
        at += 8;
      } else if (nbytes - at >= 4) {
        sum = rotate(sum ^ load(p + at, 4) * kPrime1, 23) * kPrime2 + kPrime3;
        at += 4;
      } else {
        sum = rotate(sum ^ p[at] * kPrime5, 11) * kPrime1;
        ++at;
      }
    }
    sum = (sum ^ sum >> 33) * kPrime2;
    sum = (sum ^ sum >> 29) * kPrime3;
    return sum ^ sum >> 32;
  }

 private:
  static constexpr u64 kPrime1 = 0x9e3779b185ebca87, kPrime2 = 0xc2b2ae3d27d4eb4f,
                       kPrime3 = 0x165667b19e3779f9, kPrime4 = 0x85ebca77c2b2ae63,
                       kPrime5 = 0x27d4eb2f165667c5;
  static constexpr u32 kStripe = 32, kStripesOfLoad = simt::kWarp * 8 / kStripe;

  SIMT_DEVICE static u64 rotate(u64 v, u32 bits) { return v << bits | v >> (64 - bits); }
  SIMT_DEVICE static u64 load(const u8* p, u32 nbytes) {
    u64 value = 0;
    for (u32 i = 0; i < nbytes; ++i) value |= u64{p[i]} << 8 * i;
    return value;
  }
  SIMT_DEVICE static u64 round(u64 value) { return rotate(value * kPrime2, 31) * kPrime1; }

  SIMT_DEVICE static u64 hash_stripes(const u8* p, u32 stripes) {
    const u32 lane = simt::lane_index(), own = lane % 4;
    u64 sum = own == 0 ? kPrime1 + kPrime2 : own == 1 ? kPrime2 : own == 2 ? 0 : 0 - kPrime1;
    const auto load_product = [&](u32 stripe) {
      stripe += lane / 4;
      return stripe < stripes ? load(p + u64{stripe} * kStripe + own * 8, 8) * kPrime2 : 0;
    };
    u64 product = load_product(0);
    for (u32 first = 0; first < stripes; first += kStripesOfLoad) {
      const u32 count = stripes - first < kStripesOfLoad ? stripes - first : kStripesOfLoad;
      const u64 next = load_product(first + kStripesOfLoad);
      for (u32 i = 0; i < count; ++i)
        sum = rotate(sum + simt::shuffle(product, i * 4 + own), 31) * kPrime1;
      product = next;
    }
    u64 sums[4];
    for (u32 i = 0; i < 4; ++i) sums[i] = simt::shuffle(sum, i);
    u64 hash = rotate(sums[0], 1) + rotate(sums[1], 7) + rotate(sums[2], 12) + rotate(sums[3], 18);
    for (const u64 each : sums) hash = (hash ^ round(each)) * kPrime1 + kPrime4;
    return hash;
  }
};

}  // namespace headrace::SIMT_SPACE
