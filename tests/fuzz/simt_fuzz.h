#pragma once

// What the fuzz target of every device decoder does: the host run of its kernels, on memory as
// small as their contract allows.

#include <cstdint>
#include <cstring>
#include <vector>

#include "fuzz_check.h"
#include "kernels/kernels.h"
#include "simt/host_queue.h"

namespace headrace::fuzz {

using Bytes = std::vector<std::uint8_t>;

struct Decoded {
  Fault fault;
  Bytes bytes;
};

// `read_headers`: null for decoders that ask for nothing before.
template <class F>
Decoded decode(F&& decoder,
               const Bytes& encoded,
               std::size_t nbytes,
               std::uint64_t seed,
               ReadHeaders read_headers = nullptr) {
  HostQueue queue(seed);
  // Aligned, with 16 bytes behind the last 16 that are begun.
  const Scratch<std::uint8_t> source(queue, (encoded.size() + 15) / 16 * 16 + 16);
  queue.upload(source.data(), encoded.data(), encoded.size());
  Decoded result{Fault::none, Bytes(nbytes, 0xa5)};
  const Frame frame{source.data(), encoded.size(), result.bytes.data(), nbytes, 0};
  const std::uint8_t* const host_source = encoded.data();
  std::uint32_t fault = 0;
  DecodeBatch batch{{&frame, 1}, {}, &fault};
  std::unique_ptr<const Headers> read;
  if (seed & 1) {
    batch.host_sources = {&host_source, 1};
  } else if (read_headers && seed & 2) {
    read = read_headers(host_source, encoded.size(), nbytes);
  }
  const Headers* const headers = read.get();
  if (read) batch.headers = {&headers, 1};
  decoder(queue, batch);
  result.fault = static_cast<Fault>(fault);
  return result;
}

}  // namespace headrace::fuzz
