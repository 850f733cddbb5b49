// Decoders that a backend offers beside its own kernels: the engine takes them by the name that the
// backend gives them, whichever that is.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "engine/device/stages.h"
#include "engine/layout/device_codecs.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;

std::string missing_library;  // why the library of the test is not there
std::size_t decoded_by_library = 0;

void decode_zstd(Queue& queue, const DecodeBatch& batch) {
  for (const Frame& frame : batch.frames)
    queue.copy(frame.target, frame.source, frame.target_nbytes);
  decoded_by_library += batch.frames.size();
}
const Kernels& library_kernels() {
  static constexpr Kernels kKernels{.zstd = decode_zstd};
  return kKernels;
}
std::string why_no_library() { return missing_library; }

class WithLibrary final : public test::SimtDevice {
 public:
  std::span<const DecoderLibrary> libraries() const override {
    static constexpr std::string_view kCodecs[] = {"zstd"};
    static constexpr DecoderLibrary kLibraries[] = {
        {"zstd-in-silicon", kCodecs, library_kernels, why_no_library}};
    return kLibraries;
  }
};

TEST(DeviceLibrary, DecodesTheStepsThatAskForIt) {
  missing_library.clear();
  decoded_by_library = 0;
  WithLibrary devices;
  const auto queue = simt_backend().make_queue(0);
  const std::vector<std::uint8_t> bytes{1, 2, 3, 4};
  std::vector<std::uint8_t> padded(2 * kSourcePadding + bytes.size());
  std::copy(bytes.begin(), bytes.end(), padded.begin() + kSourcePadding);
  const auto source = Scratch<std::uint8_t>::of(*queue, padded.data(), padded.size());
  const Scratch<std::uint32_t> faults(*queue, 1);
  queue->fill(faults.data(), 0, sizeof(std::uint32_t));
  std::array<std::uint8_t, 4> target{};
  const DeviceChunk chunk{bytes.size(), nullptr, source.data() + kSourcePadding, target.data()};

  DevicePlan plan;
  DeviceStep step{{Kind::zstd}, "zstd", bytes.size()};
  step.library = "zstd-in-silicon";
  plan.steps.push_back(step);
  EXPECT_EQ(missing_decoder(devices, plan), "");
  DeviceDecoder(*queue, devices, {&chunk, 1}).run(plan, faults.data());
  queue->synchronize();
  EXPECT_EQ(decoded_by_library, 1u);
  EXPECT_THAT(target, testing::ElementsAreArray(bytes));
}

TEST(DeviceLibrary, SaysWhatItLacks) {
  const WithLibrary devices;
  missing_library = "libsilicon.so is not there";
  EXPECT_EQ(missing_decoder(devices, Kind::zstd, "zstd-in-silicon"),
            "zstd-in-silicon: libsilicon.so is not there");
  missing_library.clear();
  EXPECT_EQ(missing_decoder(devices, Kind::zstd, "zstd-in-silicon"), "");
  EXPECT_EQ(missing_decoder(devices, Kind::lz4, "zstd-in-silicon"),
            "zstd-in-silicon has no decoder for it");
  EXPECT_EQ(missing_decoder(devices, Kind::zstd, "nvcomp"), "nvcomp is for other devices");
  EXPECT_EQ(missing_decoder(devices, Kind::zstd, ""), "") << "its own kernels";
}

TEST(DeviceLibrary, NamesMeanTheTypeOfDeviceThatOffersThem) {
  EXPECT_EQ(device_of_implementation("headrace-simt"), Device::Type::simt);
  EXPECT_EQ(device_of_implementation("headrace-cuda"), Device::Type::cuda);
  EXPECT_EQ(device_of_implementation("nvcomp"), Device::Type::cuda) << "with and without CUDA";
  EXPECT_EQ(device_of_implementation("libzstd"), std::nullopt);
  EXPECT_TRUE(only_decodes("nvcomp"));
  EXPECT_FALSE(only_decodes("headrace-cuda"));
  EXPECT_FALSE(only_decodes("libzstd"));
}

TEST(DeviceLibrary, ReadsNoFilesWhereTheBackendHasNothingForIt) {
  const test::SimtDevice plain;
  EXPECT_NE(plain.direct_files().why_not, "");
  EXPECT_THROW(plain.open_direct(0, "x"), Error);
}

}  // namespace
}  // namespace headrace
