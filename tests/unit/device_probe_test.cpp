// GPUs that cannot run the kernels of a build: what is asked of each, which one "auto" means, and
// what the doctor says of them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "device/device.h"
#include "device/kernel_probe.h"
#include "engine/report/device_rows.h"
#include "headrace/error.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

constexpr const char* kOld = "it has compute capability 7.5, and headrace's kernels need 8.0";

// GPUs of which each says why it cannot be used.
class Gpus final : public test::SimtDevice {
 public:
  explicit Gpus(std::vector<std::string> why_not) : why_not_(std::move(why_not)) {}
  int device_count() const override { return static_cast<int>(why_not_.size()); }
  std::string why_not(int index) const override {
    if (index < 0 || index >= device_count()) return "there is none of that number";
    return why_not_[static_cast<std::size_t>(index)];
  }
  std::string device_name(int index) const override {
    EXPECT_EQ(why_not(index), "");
    return "GPU " + std::to_string(index);
  }
  std::size_t memory_nbytes(int index) const override { return index + std::size_t{1}; }

 private:
  std::vector<std::string> why_not_;
};

TEST(DeviceProbe, AutoTakesTheFirstGpuThatHasKernels) {
  EXPECT_EQ(best_device(Gpus({""})), Device::cuda(0));
  EXPECT_EQ(best_device(Gpus({"", ""})), Device::cuda(0));
  EXPECT_EQ(best_device(Gpus({kOld, ""})), Device::cuda(1));
  EXPECT_EQ(best_device(Gpus({kOld, kOld})), Device::cpu());
  EXPECT_EQ(best_device(Gpus({})), Device::cpu());
}

TEST(DeviceProbe, SaysWhyNoGpuCanBeUsed) {
  EXPECT_EQ(Gpus({kOld, ""}).why_none(), "");
  EXPECT_EQ(Gpus({kOld, "another reason"}).why_none(), kOld);
  EXPECT_EQ(Gpus({}).why_none(), "there is none of that number");
}

TEST(DeviceProbe, TheDoctorHasARowOfEachGpu) {
  const std::vector<DeviceRow> rows = device_rows(Device::Type::cuda, Gpus({kOld, ""}));
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].device, Device::cuda(0));
  EXPECT_EQ(rows[0].why_not, kOld);
  EXPECT_EQ(rows[0].name, "");
  EXPECT_EQ(rows[1].why_not, "");
  EXPECT_EQ(rows[1].name, "GPU 1");
  EXPECT_EQ(rows[1].nbytes, 2u);

  const std::vector<DeviceRow> none = device_rows(Device::Type::cuda, Gpus({}));
  ASSERT_EQ(none.size(), 1u);
  EXPECT_EQ(none[0].why_not, "there is none of that number");
}

TEST(DeviceProbe, AsksEachDeviceOnceWhenItsAnswerLasts) {
  KernelProbe probe;
  std::vector<int> asked;
  const auto ask = [&](int device) {
    asked.push_back(device);
    return device == 0 ? KernelProbe::Answer{kOld, true} : KernelProbe::Answer{"", true};
  };
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(probe.why_not(0, ask), kOld);
    EXPECT_EQ(probe.why_not(1, ask), "");
  }
  EXPECT_THAT(asked, testing::ElementsAre(0, 1));
}

TEST(DeviceProbe, AsksAgainAfterAnErrorOfTheMoment) {
  KernelProbe probe;
  int asked = 0;
  const auto ask = [&](int) -> KernelProbe::Answer {
    if (++asked == 1) throw Error(ErrorCode::device, "out of memory");
    if (asked == 2) return {"the driver is busy", false};
    return {"", true};
  };
  EXPECT_THAT(probe.why_not(0, ask), testing::HasSubstr("out of memory"));
  EXPECT_EQ(probe.why_not(0, ask), "the driver is busy");
  EXPECT_EQ(probe.why_not(0, ask), "");
  EXPECT_EQ(probe.why_not(0, ask), "");
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace headrace
