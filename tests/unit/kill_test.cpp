// Writers that are killed (kill -9): before each of their system calls, and at any instant. What is
// left is whole, and whoever comes next can go on. HEADRACE_KILLS=2000 kills that many at random
// instants, and as many before a call.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "conformance/config_guard.h"
#include "conformance/system_faults.h"
#include "conformance/temp_folder.h"
#include "headrace/store.h"
#include "support/sanitizer.h"
#include "unit/fault_scenarios.h"

namespace headrace::test {
namespace {

namespace fs = std::filesystem;

long kills_in_all(long otherwise) {
  const char* text = std::getenv("HEADRACE_KILLS");
  return text == nullptr ? otherwise : std::strtol(text, nullptr, 10);
}

class KillTest : public testing::TestWithParam<FaultScenario> {
 protected:
  void prepare() {
    fs::remove_all(root_);
    fs::create_directory(root_);
    GetParam().prepare(root_);
  }

  // A child that does act() and then waits to be killed, or returns; its process number.
  template <typename Arm>
  pid_t start(bool waits, Arm&& arm) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    int status = 0;
    try {
      SystemFaults faults;
      arm(faults);
      GetParam().act(root_);
      faults.stop();
      while (waits) ::pause();
    } catch (const std::exception&) {
      status = 1;
    }
    ::_exit(status);
  }

  void check_after(pid_t child, int& status) {
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
    kills_ += status != 0;
    GetParam().check(root_, status == 0);
    // A writer that comes by removes what the dead one has left.
    open_store(root_ + "/s.zarr", StoreMode::append).list("");
    for (const auto& entry : fs::recursive_directory_iterator(root_ + "/s.zarr")) {
      EXPECT_FALSE(entry.path().filename().string().starts_with(".headrace-tmp-")) << entry.path();
    }
    if (GetParam().repeatable) {
      GetParam().act(root_);
      GetParam().check(root_, true);
    }
  }

  // A child that is killed reports nothing of its memory, and its fork copies a sanitizer's. What
  // FaultsTest does goes the same ways.
  void SetUp() override {
    if (under_address_sanitizer() && std::getenv("HEADRACE_KILLS") == nullptr)
      GTEST_SKIP() << "under AddressSanitizer only where HEADRACE_KILLS asks for it";
  }
  // For long_runs.py.
  void TearDown() override { RecordProperty("kills", std::to_string(kills_)); }

  TempFolder folder_{fast_directory_path()};
  const std::string root_ = folder_ / "root";
  const ConfigGuard guard_;
  long kills_ = 0;
};

TEST_P(KillTest, BeforeAnyCall) {
  set_threads(1);
  const long kills = kills_in_all(300) / static_cast<long>(fault_scenarios().size()) + 1;
  // Some after others, and in the end every one.
  long step = 1;
  for (long n = 1, made = 0;; n += step) {
    prepare();
    int status = 0;
    check_after(start(false, [&](SystemFaults& faults) { faults.kill_nth(n); }), status);
    ASSERT_FALSE(HasFailure()) << "before call " << n;
    if (status == 0) return;
    if (++made % kills == 0) step *= 2;
  }
}

TEST_P(KillTest, AtAnyInstant) {
  const long kills = kills_in_all(40) / static_cast<long>(fault_scenarios().size()) + 1;
  std::mt19937 random(42);
  // About as long as it takes.
  prepare();
  const auto begin = std::chrono::steady_clock::now();
  GetParam().act(root_);
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(
      std::chrono::steady_clock::now() - begin);
  for (long i = 0; i < kills; ++i) {
    set_threads(i % 2 == 0 ? 1 : 4);
    prepare();
    const pid_t child = start(true, [](SystemFaults&) {});
    std::this_thread::sleep_for(std::chrono::microseconds(
        random() % static_cast<unsigned>(std::max<std::int64_t>(2 * took.count(), 1000))));
    ::kill(child, SIGKILL);
    int status = 0;
    check_after(child, status);
    ASSERT_FALSE(HasFailure()) << "kill " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Stores,
                         KillTest,
                         testing::ValuesIn(fault_scenarios()),
                         [](const auto& scenario) { return std::string(scenario.param.name); });

}  // namespace
}  // namespace headrace::test
