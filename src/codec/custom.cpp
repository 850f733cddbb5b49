// The chain's view of codecs that the application keeps.

#include "codec/custom.h"

#include <cstring>
#include <utility>

#include "base/fork_mutex.h"
#include "codec/registry.h"
#include "codec/sizes.h"
#include "codec/vlen.h"

namespace headrace {
namespace {

using Providers = std::vector<std::shared_ptr<CodecProvider>>;

struct Added {
  ForkMutex mutex;
  Providers providers GUARDED_BY(mutex);

  static Added& get() {
    static auto* added = new Added;  // never destroyed: threads may outlive statics
    return *added;
  }
};

Providers providers() {
  Added& added = Added::get();
  ForkLock lock(added.mutex);
  return added.providers;
}

CodecKind kind_of(const CustomCodec& codec) {
  switch (codec.kind()) {
    case CustomCodec::Kind::array_to_array:
      return CodecKind::array_to_array;
    case CustomCodec::Kind::array_to_bytes:
      return CodecKind::array_to_bytes;
    case CustomCodec::Kind::bytes_to_bytes:
      break;
  }
  return CodecKind::bytes_to_bytes;
}

CodecArray public_array(const ChunkSpec& spec) {
  CodecArray array{spec.dtype, spec.shape, {}};
  if (spec.fill) array.fill_value = *spec.fill;
  return array;
}

ChunkSpec chunk_spec(CodecArray array) {
  ChunkSpec spec{array.dtype, std::move(array.shape), {}};
  spec.fill = std::make_shared<const std::vector<std::byte>>(std::move(array.fill_value));
  if (spec.fill->size() != spec.dtype.itemsize()) spec.fill = nullptr;
  return spec;
}

class Custom final : public Codec {
 public:
  Custom(const CodecSpec& spec, std::shared_ptr<const CustomCodec> codec)
      : codec_(std::move(codec)),
        kind_(kind_of(*codec_)),
        name_(canonical_codec_name(spec.name)),
        implementation_(codec_->implementation()) {
    if (kind_ == CodecKind::array_to_array) encoded_ = chunk_spec(codec_->encoded());
  }

  CodecKind kind() const override { return kind_; }
  std::string_view name() const override { return name_; }
  std::string_view implementation() const override { return implementation_; }

  ChunkSpec encoded_spec(const ChunkSpec& in) const override { return encoded_.value_or(in); }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    if (encoded_) return EncodedNbytes::exactly(encoded_->nbytes());
    const auto fixed = codec_->encoded_nbytes(n);
    return fixed ? EncodedNbytes::exactly(*fixed) : EncodedNbytes::at_most(kAnyNbytes);
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    const CodecOutput decoded = codec_->decode(src);
    check_decoded_size(dst.size(), decoded.bytes.size());
    if (!dst.empty()) std::memcpy(dst.data(), decoded.bytes.data(), dst.size());
  }

  // Once, whatever the bound: the application takes the memory.
  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    const CodecOutput decoded = codec_->decode(src);
    if (decoded.bytes.size() > max_nbytes) check_decoded_size(max_nbytes, decoded.bytes.size());
    dst.assign(decoded.bytes);
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    const CodecOutput encoded = codec_->encode(src);
    const auto wanted = encoded_nbytes(src.size()).fixed;
    if (wanted && *wanted != encoded.bytes.size()) {
      throw Error(ErrorCode::invalid_argument,
                  "encode: expected " + std::to_string(*wanted) + " bytes, got " +
                      std::to_string(encoded.bytes.size()));
    }
    dst.assign(encoded.bytes);
  }

 private:
  std::shared_ptr<const CustomCodec> codec_;
  CodecKind kind_;
  std::string name_;
  std::string implementation_;
  std::optional<ChunkSpec> encoded_;  // of array_to_array
};

}  // namespace

void add_codec_provider(std::shared_ptr<CodecProvider> provider) {
  Added& added = Added::get();
  ForkLock lock(added.mutex);
  added.providers.push_back(std::move(provider));
}

CodecPtr make_custom(const CodecSpec& spec, const CodecSite& site) {
  const bool is_array = site.position == CodecPosition::before_bytes;
  const CodecInput input{is_array,
                         public_array(site.in),
                         site.in.swapped,
                         public_array(is_array ? site.in : site.chunk)};
  for (const auto& provider : providers()) {
    if (auto codec = provider->make(spec, input))
      return std::make_shared<Custom>(spec, std::move(codec));
  }
  return nullptr;
}

std::vector<CodecProvider::Entry> custom_codecs() {
  std::vector<CodecProvider::Entry> entries;
  for (const auto& provider : providers()) {
    for (CodecProvider::Entry& entry : provider->codecs()) entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace headrace
