// Batches of buffers decoded and encoded by a device: what lies on the host and on the device in
// every mix, at any alignment, against what the host's codecs give. The device is the one that runs
// kernels on the CPU, and the GPU where there is one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "conformance/codec_kit.h"
#include "device/backend.h"
#include "headrace/codec.h"
#include "headrace/config.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using Bytes = std::vector<std::byte>;

using test::bytes_of;
using test::devices;

TensorView view_of(const void* data, std::size_t nbytes, Device device = Device::cpu()) {
  return {const_cast<void*>(data), {static_cast<std::int64_t>(nbytes)}, {}, DType::uint8, device};
}

// Buffers in the memory of a device, at odd places, with a byte between them that must stay.
class DeviceBuffers {
 public:
  explicit DeviceBuffers(Device device)
      : device_(device), queue_(backend(device.type).make_queue(device.index)) {}

  TensorView add(std::size_t nbytes) {
    memory_.push_back(backend(device_.type).allocate(*queue_, nbytes + 32));
    skip_ = (skip_ + 7) % 16;
    auto* at = static_cast<std::byte*>(memory_.back().get()) + skip_;
    queue_->fill(at - skip_, kGuard, nbytes + 32);
    queue_->synchronize();
    return view_of(at, nbytes, device_);
  }
  TensorView add(const Bytes& bytes) {
    const TensorView view = add(bytes.size());
    queue_->upload(view.data, bytes.data(), bytes.size());
    queue_->synchronize();
    return view;
  }
  Bytes bytes(const TensorView& view) {
    Bytes copy(view.size() + 1);
    queue_->download(copy.data(), view.data, copy.size());
    queue_->synchronize();
    EXPECT_EQ(copy.back(), std::byte{kGuard}) << "written past the end";
    copy.pop_back();
    return copy;
  }

 private:
  static constexpr std::uint8_t kGuard = 0xcd;
  Device device_;
  std::unique_ptr<Queue> queue_;
  std::vector<std::shared_ptr<void>> memory_;
  std::size_t skip_ = 0;
};

struct Case {
  const char* codec;
  const char* configuration;
  std::size_t unit = 1;  // sizes are multiples of it
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.codec; }

const Case kCases[] = {
    {"zstd", R"({"level": 1, "checksum": true})"},
    {"lz4", ""},
    {"gzip", R"({"level": 6})"},
    {"zlib", R"({"level": 1})"},
    {"blosc",
     R"({"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0})"},
    {"shuffle", R"({"elementsize": 4})"},
    {"bitshuffle", R"({"itemsize": 4, "blocksize": 8})"},
    {"crc32c", ""},
    {"fletcher32", "", 2},
    {"delta", R"({"dtype": "<i4", "astype": "<i2"})", 4},
    {"fixedscaleoffset", R"({"offset": 10, "scale": 4, "dtype": "<i4", "astype": "<i2"})", 4},
    {"bytes", R"({"endian": "big"})"},
};

class DeviceBatch : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    Config small = before_;
    small.device_min_decode_nbytes = 0;
    small.device_slab_nbytes = 2000;
    set_config(small);
  }
  void TearDown() override { set_config(before_); }

 private:
  const Config before_ = config();
};
using DeviceBatchErrors = DeviceBatch;

struct Batch {
  std::vector<Bytes> plain, encoded;
};

Batch make_batch(const Case& c) {
  Batch batch;
  for (std::size_t n : {300u, 4u, 70000u, 12u, 0u, 1000u, 5u, 3000u})
    batch.plain.push_back(kit::smooth_floats(n / c.unit * c.unit, static_cast<unsigned>(n)));
  std::vector<std::span<const std::byte>> sources(batch.plain.begin(), batch.plain.end());
  batch.encoded = encode_batch(c.codec, sources, {.configuration = c.configuration});
  // What filters lose is lost on the host too.
  std::vector<std::span<const std::byte>> inputs(batch.encoded.begin(), batch.encoded.end());
  std::vector<std::span<std::byte>> outputs(batch.plain.begin(), batch.plain.end());
  decode_batch(c.codec, inputs, outputs, {.configuration = c.configuration});
  return batch;
}

TEST_P(DeviceBatch, DecodesFromAndToWhereverBuffersLie) {
  Batch batch = make_batch(GetParam());
  const std::size_t n = batch.plain.size();
  std::mt19937 random(7);
  for (const Device device : devices()) {
    for (unsigned on_device = 0; on_device < 6; ++on_device) {
      const auto place = [&](unsigned mode) { return mode == 2 ? random() % 2 == 1 : mode == 1; };
      DeviceBuffers memory(device);
      std::vector<Bytes> host(n);
      std::vector<TensorView> inputs, outputs;
      for (std::size_t i = 0; i < n; ++i) {
        Bytes& encoded = batch.encoded[i];
        host[i].resize(batch.plain[i].size());
        inputs.push_back(place(on_device % 3) ? memory.add(encoded)
                                              : view_of(encoded.data(), encoded.size()));
        outputs.push_back(place(on_device / 3 + 1) ? memory.add(host[i].size())
                                                   : view_of(host[i].data(), host[i].size()));
      }
      const BatchOptions options{.device = device, .configuration = GetParam().configuration};
      decode_batch(GetParam().codec, inputs, outputs, options);
      for (std::size_t i = 0; i < n; ++i) {
        const Bytes got = outputs[i].device.is_cpu() ? host[i] : memory.bytes(outputs[i]);
        EXPECT_EQ(got, batch.plain[i]) << device.to_string() << ' ' << on_device << ' ' << i;
      }
    }
  }
}

TEST_P(DeviceBatch, GivesNewMemoryAndTheHostDecodesFromTheDevice) {
  const Batch batch = make_batch(GetParam());
  for (const Device device : devices()) {
    DeviceBuffers memory(device);
    std::vector<TensorView> inputs;
    std::vector<std::size_t> sizes;
    for (const Bytes& encoded : batch.encoded) inputs.push_back(memory.add(encoded));
    for (const Bytes& plain : batch.plain) sizes.push_back(plain.size());
    for (const Device to : {device, Device::cpu()}) {
      const BatchOptions options{.device = to, .configuration = GetParam().configuration};
      const auto results = decode_batch(GetParam().codec, inputs, sizes, options);
      ASSERT_EQ(results.size(), sizes.size());
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        EXPECT_EQ(results[i].device(), to);
        EXPECT_EQ(bytes_of(results[i]), batch.plain[i]);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, DeviceBatch, testing::ValuesIn(kCases), [](const auto& tested) {
  return std::string(tested.param.codec);
});

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return std::string(error_code_name(e.code())) + ' ' + e.what();
  }
  return {};
}

TEST_P(DeviceBatchErrors, NameTheInput) {
  const Batch batch = make_batch(GetParam());
  const std::size_t bad = 5;  // 1000 bytes
  const auto decode = [&](Device device, bool on_device, const Bytes& encoded, std::size_t nbytes) {
    return message_of([&] {
      DeviceBuffers memory(device);
      std::vector<Bytes> sources = batch.encoded;
      sources[bad] = encoded;
      std::vector<TensorView> inputs;
      std::vector<std::size_t> sizes;
      for (std::size_t i = 0; i < sources.size(); ++i) {
        inputs.push_back(on_device ? memory.add(sources[i])
                                   : view_of(sources[i].data(), sources[i].size()));
        sizes.push_back(i == bad ? nbytes : batch.plain[i].size());
      }
      decode_batch(GetParam().codec,
                   inputs,
                   sizes,
                   {.device = device, .configuration = GetParam().configuration});
    });
  };
  const std::string wanted = std::string("corrupt input 5: codec ") + GetParam().codec;
  const Bytes& good = batch.encoded[bad];
  const std::size_t n = batch.plain[bad].size();
  for (const Device device : devices()) {
    for (const bool on_device : {false, true}) {
      const std::string place = device.to_string() + (on_device ? " device" : " host");
      EXPECT_EQ(decode(device, on_device, good, n), "") << place;
      EXPECT_THAT(decode(device, on_device, good, n + 1), testing::StartsWith(wanted)) << place;
      EXPECT_THAT(decode(device, on_device, good, n - 1), testing::StartsWith(wanted)) << place;
      EXPECT_THAT(decode(device, on_device, Bytes(3), n), testing::StartsWith(wanted)) << place;
      EXPECT_THAT(decode(device, on_device, {}, n), testing::StartsWith(wanted)) << place;
      Bytes cut = good;
      cut.pop_back();
      EXPECT_THAT(decode(device, on_device, cut, n), testing::StartsWith(wanted)) << place;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs,
                         DeviceBatchErrors,
                         testing::ValuesIn(kCases),
                         [](const auto& tested) { return std::string(tested.param.codec); });

class DeviceBatchChoice : public DeviceBatch {};

TEST_F(DeviceBatchChoice, OfAnImplementation) {
  const Batch batch = make_batch(kCases[0]);
  std::vector<TensorView> inputs;
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < batch.plain.size(); ++i) {
    inputs.push_back(
        view_of(const_cast<std::byte*>(batch.encoded[i].data()), batch.encoded[i].size()));
    sizes.push_back(batch.plain[i].size());
  }
  const auto decode = [&](const char* codec, const BatchOptions& options) {
    return message_of([&] { decode_batch(codec, inputs, sizes, options); });
  };
  const Device simt = Device::simt();
  EXPECT_EQ(decode("zstd", {.device = simt, .implementation = "headrace-simt"}), "");
  EXPECT_EQ(decode("zstd", {.device = simt, .implementation = "libzstd"}), "");
  EXPECT_THAT(decode("zstd", {.device = simt, .implementation = "headrace-cuda"}),
              testing::HasSubstr("invalid_argument decode_batch: implementation headrace-cuda"));
  EXPECT_THAT(decode("zstd", {.implementation = "headrace-simt"}),
              testing::HasSubstr("not on cpu"));
  EXPECT_THAT(decode("zstd", {.device = simt, .implementation = "nobody"}),
              testing::HasSubstr("libzstd"));
  EXPECT_THAT(decode("jenkins_lookup3", {.device = simt, .implementation = "headrace-simt"}),
              testing::HasSubstr("jenkins_lookup3"));
  Config forced = config();
  forced.implementations = {{"zstd", "headrace-simt"}};
  set_config(forced);
  EXPECT_EQ(decode("zstd", {.device = simt}), "");
  EXPECT_THAT(decode("zstd", {}), testing::HasSubstr("not on cpu"));
  EXPECT_EQ(decode("zstd", {.implementation = "libzstd"}), "");
}

TEST_F(DeviceBatchChoice, RefusesBuffersThatItCannotTake) {
  std::byte bytes[16] = {};
  TensorView strided = view_of(bytes, 4);
  strided.strides = {2};
  const TensorView plain = view_of(bytes, 4);
  const std::vector<std::size_t> sizes{4};
  EXPECT_THAT(message_of([&] { decode_batch("zstd", std::span(&strided, 1), sizes); }),
              testing::HasSubstr("input 0 is not contiguous"));
  const std::vector<TensorView> mixed{view_of(bytes, 4, Device::simt()),
                                      view_of(bytes, 4, Device::cuda(1))};
  EXPECT_THAT(message_of([&] { decode_batch("zstd", mixed, mixed); }),
              testing::HasSubstr("input 1 lies on cuda:1, others on simt"));
  EXPECT_THAT(message_of([&] { decode_batch("zstd", mixed, std::span(&plain, 1)); }),
              testing::HasSubstr("2 inputs for 1 outputs"));
}

const Case kEncoded[] = {
    {"zstd", R"({"level": 3, "checksum": true})"},
    {"lz4", ""},
    {"blosc",
     R"({"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0})"},
    {"blosc",
     R"({"cname": "zstd", "clevel": 2, "shuffle": "bitshuffle", "typesize": 8, "blocksize": 0})"},
    {"blosc",
     R"({"cname": "lz4", "clevel": 9, "shuffle": "noshuffle", "typesize": 1, "blocksize": 512})"},
    {"shuffle", R"({"elementsize": 4})"},
    {"bitshuffle", R"({"itemsize": 2, "blocksize": 64})"},
};

class DeviceBatchEncodes : public DeviceBatch {
 protected:
  static std::string own(Device device) { return std::string(backend(device.type).own_name()); }
  static BatchOptions options(Device device, std::string implementation = "") {
    return {.device = device,
            .implementation = std::move(implementation),
            .configuration = GetParam().configuration};
  }
  // Encoded by headrace's host codecs.
  static std::vector<Bytes> by_host(const std::vector<Bytes>& plain) {
    const std::vector<std::span<const std::byte>> inputs(plain.begin(), plain.end());
    return encode_batch(GetParam().codec, inputs, options(Device::cpu()));
  }
  static std::vector<Bytes> bytes_on(Device device, const std::vector<Tensor>& results) {
    std::vector<Bytes> bytes;
    for (const Tensor& result : results) {
      EXPECT_EQ(result.device(), device);
      bytes.push_back(bytes_of(result));
    }
    return bytes;
  }
  static void expect_decoded(const std::vector<Bytes>& encoded, const std::vector<Bytes>& plain) {
    ASSERT_EQ(encoded.size(), plain.size());
    const std::vector<std::span<const std::byte>> inputs(encoded.begin(), encoded.end());
    std::vector<Bytes> decoded;
    for (const Bytes& bytes : plain) decoded.emplace_back(bytes.size());
    const std::vector<std::span<std::byte>> outputs(decoded.begin(), decoded.end());
    decode_batch(GetParam().codec, inputs, outputs, options(Device::cpu()));
    EXPECT_EQ(decoded, plain);
  }
};

std::vector<TensorView> moved(DeviceBuffers& memory, const std::vector<Bytes>& plain) {
  std::vector<TensorView> inputs;
  for (const Bytes& bytes : plain) inputs.push_back(memory.add(bytes));
  return inputs;
}

TEST_P(DeviceBatchEncodes, WhatLiesThereAndWhatItIsToldTo) {
  std::vector<Bytes> plain;
  for (std::size_t n : {300u, 0u, 70000u, 1u, 13u, 4u, 200001u, 5000u})
    plain.push_back(kit::smooth_floats(n, static_cast<unsigned>(n)));
  plain.push_back(kit::noise(3001));
  for (const Device device : devices()) {
    DeviceBuffers memory(device);
    const std::vector<TensorView> inputs = moved(memory, plain);
    const auto encode = [&](std::span<const TensorView> from, const std::string& implementation) {
      return bytes_on(device,
                      encode_batch(GetParam().codec, from, options(device, implementation)));
    };
    const std::vector<Bytes> encoded = encode(inputs, "");
    expect_decoded(encoded, plain);
    EXPECT_EQ(encode(inputs, own(device)), encoded);
    std::vector<TensorView> mixed = inputs;
    for (std::size_t i = 0; i < plain.size(); i += 2)
      mixed[i] = view_of(plain[i].data(), plain[i].size());
    EXPECT_EQ(encode(mixed, own(device)), encoded);
    EXPECT_EQ(encode(mixed, ""), by_host(plain));
  }
}

TEST_P(DeviceBatchEncodes, ManySmallBuffers) {
  std::vector<Bytes> plain;
  for (unsigned i = 0; i < 500; ++i) plain.push_back(kit::smooth_floats(i % 41, i));
  for (const Device device : devices()) {
    DeviceBuffers memory(device);
    const auto results = encode_batch(GetParam().codec, moved(memory, plain), options(device));
    expect_decoded(bytes_on(device, results), plain);
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs,
                         DeviceBatchEncodes,
                         testing::ValuesIn(kEncoded),
                         [](const auto& tested) {
                           return std::string(tested.param.codec) + std::to_string(tested.index);
                         });

// The bytes that come of encoding by `implementation` from where `on_device` says.
Bytes encoded(const char* configuration,
              Device device,
              bool on_device,
              const std::string& implementation = "") {
  Bytes plain = kit::smooth_floats(4000, 3);
  DeviceBuffers memory(device.is_cpu() ? Device::simt() : device);
  const TensorView input = on_device ? memory.add(plain) : view_of(plain.data(), plain.size());
  const BatchOptions options{
      .device = device, .implementation = implementation, .configuration = configuration};
  return bytes_of(encode_batch("zstd", std::span(&input, 1), options)[0]);
}

TEST_F(DeviceBatchChoice, OfWhoEncodes) {
  constexpr const char *kFast = R"({"level": 3})", *kThorough = R"({"level": 4})";
  const Device simt = Device::simt(), cpu = Device::cpu();
  const Bytes host = encoded(kFast, cpu, false), kernels = encoded(kFast, simt, true);
  ASSERT_NE(host, kernels);
  EXPECT_EQ(encoded(kFast, simt, false), host);
  EXPECT_EQ(encoded(kFast, cpu, true), host);
  EXPECT_EQ(encoded(kFast, simt, true, "libzstd"), host);
  EXPECT_EQ(encoded(kFast, simt, false, "headrace-simt"), kernels);
  EXPECT_EQ(encoded(kThorough, simt, true), encoded(kThorough, cpu, false));
  EXPECT_EQ(encoded(kThorough, simt, true, "headrace-simt"), kernels);
  Config changed = config();
  changed.device_min_decode_nbytes = 4001;
  set_config(changed);
  EXPECT_EQ(encoded(kFast, simt, true), host);
  changed.device_min_decode_nbytes = std::nullopt;  // 1 MiB
  set_config(changed);
  EXPECT_EQ(encoded(kFast, simt, true), host);
  changed.implementations = {{"zstd", "headrace-simt"}};
  set_config(changed);
  EXPECT_EQ(encoded(kFast, simt, false), kernels);
  EXPECT_EQ(encoded(kFast, cpu, true), host);
  EXPECT_EQ(encoded(kFast, simt, true, "libzstd"), host);
}

TEST_F(DeviceBatchChoice, SaysWhyItCannotEncode) {
  std::byte bytes[16] = {};
  const auto message = [&](const char* codec,
                           Device device,
                           const char* implementation,
                           std::size_t nbytes = sizeof bytes) {
    const TensorView input = view_of(bytes, nbytes, Device::simt());
    return message_of([&] {
      encode_batch(
          codec, std::span(&input, 1), {.device = device, .implementation = implementation});
    });
  };
  const Device simt = Device::simt();
  EXPECT_EQ(message("zstd", Device::cpu(), "headrace-simt"),
            "invalid_argument encode_batch: implementation headrace-simt is for devices of that "
            "type, not on cpu");
  EXPECT_THAT(message("zstd", simt, "headrace-cuda"), testing::HasSubstr("not on simt"));
  EXPECT_EQ(message("zstd", simt, "nvcomp"),
            "unsupported encode_batch: implementation nvcomp only decodes zstd");
  for (const char* codec : {"gzip", "crc32c", "bytes"}) {
    EXPECT_EQ(message(codec, simt, "headrace-simt"),
              std::string("unsupported encode_batch: codec ") + codec +
                  " on headrace-simt: has no encoder for devices as it is set");
  }
  EXPECT_THAT(message("zstd", simt, "headrace-simt", std::size_t{1} << 32),
              testing::HasSubstr("4294967296 bytes, at most 4294967295"));
  EXPECT_THAT(message("lz4", simt, "headrace-simt", 0x7e000001),
              testing::HasSubstr("2113929217 bytes, at most 2113929216"));
  EXPECT_THAT(message("blosc", simt, "headrace-simt", 0x7ffffff0),
              testing::HasSubstr("2147483632 bytes, at most 2147483631"));
  Config changed = config();
  changed.implementations = {{"zstd", "nvcomp"}};
  set_config(changed);
  EXPECT_THAT(message("zstd", simt, ""), testing::HasSubstr("nvcomp only decodes zstd"));
  EXPECT_EQ(message("zstd", Device::cpu(), ""), "");
  EXPECT_EQ(message("zstd", simt, "libzstd"), "");
}

}  // namespace
}  // namespace headrace
