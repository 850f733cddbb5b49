// Rates that a process measures: when, with which clock, and what it keeps of them.

#include "engine/device/rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "conformance/config_guard.h"
#include "conformance/temp_folder.h"
#include "engine/device/rates_file.h"
#include "unit/device_kit.h"

namespace headrace {
namespace {

using Kind = DeviceStage::Kind;
using testing::HasSubstr;
using testing::StartsWith;

// A device that is worth measuring.
class Measurable final : public test::SimtDevice {
 public:
  std::string name = "Abacus 9000", version = "driver 1";
  bool fails = false;
  std::string_view own_name() const override { return "headrace-abacus"; }
  std::string device_name(int) const override { return name; }
  std::string driver(int) const override { return version; }
  std::unique_ptr<Queue> make_queue(int index) override {
    ++queues;
    if (fails) throw Error(ErrorCode::device, "the beads are stuck");
    return test::SimtDevice::make_queue(index);
  }
  int queues = 0;  // one for each measurement
};

double fake_us = 0, fake_step_us = 0;
double fake_clock() { return fake_us += fake_step_us; }

class Rates : public testing::Test {
 protected:
  void SetUp() override {
    keep("XDG_CACHE_HOME");
    keep("HOME");
    ::setenv("XDG_CACHE_HOME", cache_.path().c_str(), 1);
    Config measured = config();
    measured.device_min_decode_nbytes.reset();
    set_config(measured);
    fake_step_us = 100;
    forget_rates(fake_clock);
  }
  void TearDown() override {
    forget_rates(nullptr);
    for (const auto& [name, value] : before_)
      value.empty() ? ::unsetenv(name) : ::setenv(name, value.c_str(), 1);
  }
  void keep(const char* name) {
    const char* const value = std::getenv(name);
    before_.emplace_back(name, value ? value : "");
  }

  bool chooses(std::size_t nbytes) {
    const Kind zstd = Kind::zstd;
    return chooses_device(device_, 0, {&zstd, 1}, {1, nbytes / 2, nbytes, nbytes}, 1, config());
  }
  RatesInForce in_force() { return rates_in_force(device_, 0, config()); }
  std::vector<std::filesystem::path> files() const {
    std::vector<std::filesystem::path> found;
    const std::filesystem::path folder = cache_ / "headrace";
    if (!std::filesystem::exists(folder)) return found;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      found.push_back(entry.path());
    return found;
  }

  const test::ConfigGuard guard_;
  const test::TempFolder cache_;
  Measurable device_;
  std::vector<std::pair<const char*, std::string>> before_;
};

// Near the border by the rates built in: 0.65 GB/s against 550 us.
constexpr std::size_t kNear = 400'000;

TEST_F(Rates, AreMeasuredBeforeTheFirstChoiceThatDependsOnThem) {
  EXPECT_THAT(in_force().source, StartsWith("built in: nothing was measured yet"));
  EXPECT_EQ(device_.queues, 0) << "to look is not to measure";
  EXPECT_FALSE(chooses(100));
  EXPECT_EQ(device_.queues, 0) << "whatever the rates, the host decodes 100 bytes";
  chooses(kNear);
  EXPECT_EQ(device_.queues, 1);
  EXPECT_THAT(in_force().source, HasSubstr("measured, and kept in " + cache_.path()));
  // By the clock everything took 100 us: 128 KiB of samples, 8 MiB of copies. The host has to fetch
  // the sample, too: 0.9 us at that rate.
  EXPECT_NEAR(in_force().rates.zstd.host_gb_s, 1.30, 0.005);
  EXPECT_EQ(in_force().rates.zstd.device_us, 100);
  EXPECT_NEAR(in_force().rates.deflate.host_gb_s, 1.30, 0.005);
  EXPECT_EQ(in_force().rates.fetch_gb_s, 40) << "83 is more than eight times what is built in";
  EXPECT_NEAR(in_force().rates.copy_gb_s, 83.9, 0.1);
  chooses(kNear);
  EXPECT_EQ(device_.queues, 1);
}

TEST_F(Rates, MoveTheBorder) {
  Config built_in = config();
  built_in.device_rates = "built-in";
  set_config(built_in);
  const auto border = [&] {
    std::size_t nbytes = 1000;
    while (!chooses(nbytes)) nbytes += 1000;
    return nbytes;
  };
  const std::size_t before = border();
  EXPECT_EQ(device_.queues, 0);
  built_in.device_rates = "measured";
  set_config(built_in);
  chooses(kNear);
  EXPECT_LT(border(), before) << "a device that takes 100 us in place of 550";
}

TEST_F(Rates, ALimitThatIsSetWins) {
  Config limited = config();
  limited.device_min_decode_nbytes = kNear;
  set_config(limited);
  EXPECT_TRUE(chooses(kNear));
  EXPECT_FALSE(chooses(kNear - 1));
  EXPECT_EQ(device_.queues, 0);
}

TEST_F(Rates, AreKeptForLaterProcesses) {
  chooses(kNear);
  const RatesInForce measured = in_force();
  ASSERT_EQ(files().size(), 1u);
  forget_rates(fake_clock);
  EXPECT_EQ(in_force().source, files()[0]);
  EXPECT_EQ(in_force().rates.lz4.host_gb_s, measured.rates.lz4.host_gb_s);
  EXPECT_EQ(in_force().rates.fetch_gb_s, measured.rates.fetch_gb_s);
  chooses(kNear);
  EXPECT_EQ(device_.queues, 1);
  // Another driver, and another device.
  device_.version = "driver 2";
  forget_rates(fake_clock);
  chooses(kNear);
  EXPECT_EQ(device_.queues, 2);
  device_.name = "Abacus 9001";
  forget_rates(fake_clock);
  chooses(kNear);
  EXPECT_EQ(device_.queues, 3);
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(Rates, AFileThatIsNoGoodIsMeasuredAnew) {
  chooses(kNear);
  const std::filesystem::path path = files().at(0);
  std::ifstream file(path);
  const std::string good{std::istreambuf_iterator<char>(file), {}};
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string text = good;
    const std::size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), instead);
  };
  int queues = device_.queues;
  for (const std::string& text : {std::string(),
                                  std::string("{"),
                                  std::string("null"),
                                  std::string("[1, 2]"),
                                  std::string(100'000, '['),
                                  good.substr(0, good.size() / 2),
                                  with("\"device_us\": 100.0", "\"device_us\": -1"),
                                  with("\"device_us\": 100.0", "\"device_us\": 1e999"),
                                  with("\"device_us\": 100.0", "\"device_us\": \"100\""),
                                  with("driver 1", "driver 2"),
                                  with("\"fetch_gb_s\"", "\"fetch\"")}) {
    std::ofstream(path) << text;
    forget_rates(fake_clock);
    chooses(kNear);
    EXPECT_EQ(device_.queues, ++queues) << text.substr(0, 80);
    EXPECT_EQ(in_force().rates.zstd.device_us, 100);
  }
  // What is out of bounds is taken into them.
  std::ofstream(path) << with("\"device_us\": 100.0", "\"device_us\": 1e30");
  forget_rates(fake_clock);
  EXPECT_EQ(in_force().rates.zstd.device_us, 8 * DecodeRates().zstd.device_us);
  EXPECT_EQ(device_.queues, queues);
}

TEST_F(Rates, AHomeThatTakesNoFilesCostsAMeasurementAProcess) {
  ::setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  chooses(kNear);
  EXPECT_THAT(in_force().source, StartsWith("measured, and not kept: "));
  chooses(kNear);
  EXPECT_EQ(device_.queues, 1);
  ::setenv("XDG_CACHE_HOME", "relative/path", 1);
  ::setenv("HOME", "", 1);
  forget_rates(fake_clock);
  chooses(kNear);
  EXPECT_THAT(in_force().source, HasSubstr("neither XDG_CACHE_HOME nor HOME"));
  ::setenv("HOME", cache_.path().c_str(), 1);
  forget_rates(fake_clock);
  chooses(kNear);
  EXPECT_TRUE(std::filesystem::exists(cache_ / ".cache/headrace"));
}

TEST_F(Rates, ADeviceThatFailsIsNotMeasuredAgain) {
  device_.fails = true;
  chooses(kNear);
  chooses(kNear);
  EXPECT_EQ(device_.queues, 1);
  EXPECT_THAT(in_force().source, HasSubstr("measuring failed: the beads are stuck"));
  EXPECT_EQ(in_force().rates.zstd.device_us, DecodeRates().zstd.device_us);
  EXPECT_TRUE(files().empty());
}

TEST_F(Rates, TheDeviceOfTestsIsNotMeasured) {
  EXPECT_EQ(rates_in_force(simt_backend(), 0, config()).source,
            "built in: nothing is measured on this type of device");
  const Kind zstd = Kind::zstd;
  chooses_device(simt_backend(), 0, {&zstd, 1}, {1, kNear / 2, kNear, kNear}, 1, config());
  EXPECT_TRUE(files().empty());
}

TEST_F(Rates, AClockThatStandsStillGivesBounds) {
  fake_step_us = 0;
  chooses(kNear);
  const DecodeRates rates = in_force().rates;
  EXPECT_EQ(rates.zstd.host_gb_s, 8 * DecodeRates().zstd.host_gb_s);
  EXPECT_EQ(rates.zstd.device_us, DecodeRates().zstd.device_us / 8);
}

// By a clock on both sides: what the simulated kernels take is beyond the bound. That of what this
// process has had of the processors stands still while others of a busy machine have them.
TEST_F(Rates, MeasuringDecodesTheSamples) {
  const auto now = [] {
    timespec time{};
    EXPECT_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time), 0);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
  };
  const DecodeRates rates = measure_rates(simt_backend(), 0, now);
  for (const auto& [name, codec] : kRatedCodecs) {
    EXPECT_GT((rates.*codec).host_gb_s, 0.01) << name;
    EXPECT_LT((rates.*codec).host_gb_s, 1000) << name;
    EXPECT_GT((rates.*codec).device_us, 1) << name;
  }
  EXPECT_GT(rates.fetch_gb_s, 0.1);
}

}  // namespace
}  // namespace headrace
