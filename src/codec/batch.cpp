#include <algorithm>

#include "base/thread_pool.h"
#include "codec/registry.h"
#include "headrace/codec.h"
#include "headrace/error.h"

namespace headrace {
namespace {

CodecPtr resolve_for_batch(std::string_view codec, const BatchOptions& options) {
  if (!options.device.is_cpu()) {
    throw Error(ErrorCode::unsupported,
                "codec batches on " + options.device.to_string() + " are not in this build");
  }
  Implementations implementations;
  if (!options.implementation.empty()) {
    implementations.emplace(canonical_codec_name(codec), options.implementation);
  }
  const CodecSite site{{DType::uint8, {0}, {}}, CodecPosition::after_bytes, &implementations};
  return resolve_codec({std::string(codec), options.configuration}, site, implementations);
}

template <typename Function>
void at_input(std::size_t i, const Codec& codec, Function&& function) {
  try {
    function();
  } catch (const Error& e) {
    throw e.with_context("input " + std::to_string(i) + ", codec " + std::string(codec.name()));
  }
}

}  // namespace

void decode_batch(std::string_view codec,
                  std::span<const std::span<const std::byte>> inputs,
                  std::span<const std::span<std::byte>> outputs,
                  const BatchOptions& options) {
  if (inputs.size() != outputs.size()) {
    throw Error(ErrorCode::invalid_argument,
                "decode_batch: " + std::to_string(inputs.size()) + " inputs for " +
                    std::to_string(outputs.size()) + " outputs");
  }
  if (inputs.empty()) return;
  const CodecPtr prepared = resolve_for_batch(codec, options);
  // Threads that inputs do not keep busy help within one.
  const int threads = thread_count();
  const DecodeContext context{
      std::max(1,
               threads / static_cast<int>(std::min<std::size_t>(
                             inputs.size(), static_cast<std::size_t>(threads))))};
  parallel_for(inputs.size(), [&](std::size_t i) {
    at_input(i, *prepared, [&] { prepared->decode(inputs[i], outputs[i], context); });
  });
}

std::vector<std::vector<std::byte>> encode_batch(std::string_view codec,
                                                 std::span<const std::span<const std::byte>> inputs,
                                                 const BatchOptions& options) {
  std::vector<std::vector<std::byte>> encoded(inputs.size());
  if (inputs.empty()) return encoded;
  const CodecPtr prepared = resolve_for_batch(codec, options);
  parallel_for(inputs.size(), [&](std::size_t i) {
    at_input(i, *prepared, [&] {
      Buffer buffer;
      prepared->encode(inputs[i], buffer);
      encoded[i].assign(buffer.data(), buffer.data() + buffer.size());
    });
  });
  return encoded;
}

}  // namespace headrace
