// Any bytes as a snapshot and as a manifest: list what they name, look each chunk up.

#include <cstddef>
#include <cstdint>

#include "fuzz_check.h"
#include "store/icechunk/snapshot.h"

using namespace headrace;
using namespace headrace::fuzz;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data), size);
  attempt([&] {
    const IcechunkSnapshot snapshot(bytes, "x");
    for (const IcechunkNode& node : snapshot.nodes()) check(snapshot.find(node.path) == &node);
  });
  attempt([&] {
    const IcechunkManifest manifest(bytes, "x");
    // Ids of arrays lie in the bytes, where these are not compressed.
    for (std::size_t at = 0; at + 8 <= size && at < 512; ++at) {
      IcechunkNodeId node;
      for (std::size_t i = 0; i < node.size(); ++i) node[i] = bytes[at + i];
      for (const auto& chunk : manifest.chunks_of(node)) {
        attempt([&] { check(manifest.find(node, chunk).has_value()); });
      }
    }
  });
  return 0;
}
