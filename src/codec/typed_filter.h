#pragma once

// What numcodecs' typed filters share. In v2 they take the flat bytes that `bytes` made, in v3 the
// array; the bytes are the same.

#include "codec/codec.h"
#include "codec/config.h"
#include "codec/elements.h"

namespace headrace {

class TypedFilter : public Codec {
 public:
  CodecKind kind() const final {
    return position_ == CodecPosition::before_bytes ? CodecKind::array_to_array
                                                    : CodecKind::bytes_to_bytes;
  }
  std::string_view implementation() const final { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const final {
    return EncodedNbytes::exactly(n / decoded_.size * encoded_.size);
  }
  Transform transform() const override {
    return decoded_ == encoded_ ? Transform::in_place : Transform::out_of_place;
  }
  ChunkSpec encoded_spec(const ChunkSpec& in) const final;

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext& context) const final;
  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const final;
  void encode(ConstBytes src, Buffer& dst) const final;

 protected:
  TypedFilter(ElementType decoded, ElementType encoded, CodecPosition position)
      : decoded_(decoded), encoded_(encoded), position_(position) {}

  // Native elements; src may be dst where transform() is in_place.
  virtual void decode_elements(const std::byte* src, std::byte* dst, std::size_t n) const = 0;
  virtual void encode_elements(const std::byte* src, std::byte* dst, std::size_t n) const = 0;

  // The stage of a kind that takes numbers.
  DeviceStage number_stage(DeviceStage::Kind kind) const {
    DeviceStage stage{kind};
    stage.encoded = encoded_;
    stage.decoded = decoded_;
    return stage;
  }

  const ElementType decoded_;
  const ElementType encoded_;
  const CodecPosition position_;
};

// A field with a NumPy type; `fallback` when it is absent. In front of `bytes` the order of bytes
// is native, and nothing else makes sense.
ElementType element_type(CodecConfig& config,
                         std::string_view field,
                         CodecPosition position,
                         std::optional<ElementType> fallback);

// The type that a site's elements have, if they are numbers.
std::optional<ElementType> site_element_type(const CodecSite& site);

// The type of elements that are plain numbers of 8 bits and more; `unsupported` for all others.
ElementType number_type(const CodecSpec& spec, const DType& dtype);

// One native element that a field gives as v3 gives fill values; `fallback`, such JSON too, when it
// is absent.
std::vector<std::byte> scalar(CodecConfig& config,
                              std::string_view field,
                              const DType& dtype,
                              std::string_view fallback);

// Checks that the filter's elements are as large as the array's where the array is what it gets.
void check_site_type(const CodecConfig& config, const ElementType& type, const CodecSite& site);

// Elements a pass of filters that go through a work type: a tile of doubles fits the L1 cache.
inline constexpr std::size_t kFilterTile = 1024;

}  // namespace headrace
