#pragma once

#include "simt/simt.h"

namespace headrace::SIMT_SPACE {

template <unsigned threads>
struct SumShared {
  u64 of_warp[threads / simt::kWarp];
};

// By all threads of a CTA: of those before and including this one, and of all.
template <unsigned threads>
SIMT_DEVICE u64 sum_in_cta(SumShared<threads>& shared, u64 value, u64& all) {
  const u64 in_warp = simt::inclusive_sum(value);
  if (simt::lane_index() == simt::kWarp - 1) shared.of_warp[simt::warp_index()] = in_warp;
  simt::sync_cta();
  u64 before = 0;
  all = 0;
  for (unsigned w = 0; w < threads / simt::kWarp; ++w) {
    if (w < simt::warp_index()) before += shared.of_warp[w];
    all += shared.of_warp[w];
  }
  simt::sync_cta();
  return before + in_warp;
}

}  // namespace headrace::SIMT_SPACE
