// crc32c, crc32, adler32, fletcher32, jenkins_lookup3: bytes -> bytes, a checksum of 4 bytes,
// little-endian, after the bytes or before them.
// Compatibility: numcodecs' "location" option; crc32 and adler32 stand first unless it says "end",
// the others last.
// Spec: https://zarr-specs.readthedocs.io/en/latest/v3/codecs/crc32c/index.html
//       https://numcodecs.readthedocs.io/en/stable/checksum32.html
// {"name": "crc32c"}
// {"name": "numcodecs.adler32", "configuration": {"location": "end"}}

#include <cstring>

#include "codec/codecs.h"
#include "codec/config.h"
#include "codec/hashes.h"
#include "codec/scratch.h"
#include "codec/sizes.h"

namespace headrace {
namespace {

constexpr std::size_t kSumNbytes = 4;

// Where the sum stands.
enum class Location : std::uint8_t { start, end };

class Checksum : public Codec, public ViewDecoder {
 public:
  explicit Checksum(Location location, std::optional<DeviceStage::Kind> on_device = {})
      : at_start_(location == Location::start), on_device_(on_device) {}

  CodecKind kind() const override { return CodecKind::bytes_to_bytes; }
  std::string_view implementation() const override { return "headrace"; }
  EncodedNbytes encoded_nbytes(std::size_t n) const override {
    return EncodedNbytes::exactly(n + kSumNbytes);
  }
  PartialDecoder partial_decoder() const override { return this; }
  std::optional<DeviceStage> device_stage() const override {
    if (!on_device_) return std::nullopt;
    DeviceStage stage{*on_device_};
    stage.at_start = at_start_;
    return stage;
  }

  ConstBytes decode_view(ConstBytes src) const override {
    if (src.size() < kSumNbytes) {
      throw_corrupt("a checksum of 4 bytes does not fit into " + std::to_string(src.size()));
    }
    const std::size_t n = src.size() - kSumNbytes;
    const ConstBytes plain = src.subspan(at_start_ ? kSumNbytes : 0, n);
    const auto stored = load_le<std::uint32_t>(src.data() + (at_start_ ? 0 : n));
    const std::uint32_t computed = sum(plain);
    if (stored != computed) {
      throw_corrupt("checksum: expected " + std::to_string(stored) + ", got " +
                    std::to_string(computed));
    }
    return plain;
  }

  void decode(ConstBytes src, MutableBytes dst, const DecodeContext&) const override {
    const ConstBytes plain = decode_view(src);
    check_decoded_size(dst.size(), plain.size());
    if (!plain.empty()) std::memcpy(dst.data(), plain.data(), plain.size());
  }

  void decode_unknown(ConstBytes src, std::size_t max_nbytes, Buffer& dst) const override {
    const ConstBytes plain = decode_view(src);
    if (plain.size() > max_nbytes) check_decoded_size(max_nbytes, plain.size());
    dst.assign(plain);
  }

  void encode(ConstBytes src, Buffer& dst) const override {
    dst.resize(src.size() + kSumNbytes);
    std::byte* const plain = dst.data() + (at_start_ ? kSumNbytes : 0);
    if (!src.empty()) std::memcpy(plain, src.data(), src.size());
    store_le(at_start_ ? dst.data() : plain + src.size(), sum(src));
  }

 protected:
  virtual std::uint32_t sum(ConstBytes bytes) const = 0;

 private:
  bool at_start_;
  std::optional<DeviceStage::Kind> on_device_;
};

using Sum = std::uint32_t (*)(ConstBytes);

class SimpleChecksum final : public Checksum {
 public:
  SimpleChecksum(std::string_view name, Sum compute, Location location, DeviceStage::Kind on_device)
      : Checksum(location, on_device), name_(name), compute_(compute) {}
  std::string_view name() const override { return name_; }

 private:
  std::uint32_t sum(ConstBytes bytes) const override { return compute_(bytes); }

  std::string_view name_;
  Sum compute_;
};

class JenkinsChecksum final : public Checksum {
 public:
  JenkinsChecksum(std::uint32_t initial, std::vector<std::byte> prefix)
      : Checksum(Location::end), initial_(initial), prefix_(std::move(prefix)) {}
  std::string_view name() const override { return "jenkins_lookup3"; }

 private:
  std::uint32_t sum(ConstBytes bytes) const override {
    if (prefix_.empty()) return jenkins_lookup3(bytes, initial_);
    Scratch joined;
    joined->assign(prefix_);
    joined->append(bytes);
    return jenkins_lookup3(joined.bytes(), initial_);
  }

  std::uint32_t initial_;
  std::vector<std::byte> prefix_;
};

CodecPtr make(const CodecSpec& spec,
              std::string_view name,
              Sum compute,
              Location location,
              DeviceStage::Kind on_device) {
  CodecConfig config(spec);
  if (config.has("location")) {
    const std::string text = config.string("location");
    if (text != "start" && text != "end") {
      config.fail("location", "must be \"start\" or \"end\", got \"" + text + "\"");
    }
    location = text == "start" ? Location::start : Location::end;
  }
  config.finish();
  return std::make_shared<SimpleChecksum>(name, compute, location, on_device);
}

}  // namespace

CodecPtr make_crc32c(const CodecSpec& spec, const CodecSite&) {
  return make(spec, "crc32c", crc32c, Location::end, DeviceStage::Kind::crc32c);
}

CodecPtr make_crc32(const CodecSpec& spec, const CodecSite&) {
  return make(spec, "crc32", crc32, Location::start, DeviceStage::Kind::crc32);
}

CodecPtr make_adler32(const CodecSpec& spec, const CodecSite&) {
  return make(spec, "adler32", adler32, Location::start, DeviceStage::Kind::adler32);
}

CodecPtr make_fletcher32(const CodecSpec& spec, const CodecSite&) {
  CodecConfig(spec).finish();
  return std::make_shared<SimpleChecksum>(
      "fletcher32", fletcher32, Location::end, DeviceStage::Kind::fletcher32);
}

CodecPtr make_jenkins_lookup3(const CodecSpec& spec, const CodecSite&) {
  CodecConfig config(spec);
  const auto initial = static_cast<std::uint32_t>(config.integer("initval", 0, UINT32_MAX, 0));
  std::vector<std::byte> prefix;
  if (config.has("prefix")) {
    for (std::int64_t v : config.integers("prefix")) {
      if (v < 0 || v > 255) config.fail("prefix", "must be a list of bytes");
      prefix.push_back(static_cast<std::byte>(v));
    }
  }
  config.finish();
  return std::make_shared<JenkinsChecksum>(initial, std::move(prefix));
}

}  // namespace headrace
