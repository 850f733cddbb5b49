// Every system call of a store fails once in every way that its manual page names, and many of them
// at random. HEADRACE_FAULT_SCHEDULES=1000 gives more of the latter, and HEADRACE_FAULTS=all every
// way of every call in place of one each.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "conformance/config_guard.h"
#include "conformance/system_faults.h"
#include "conformance/temp_folder.h"
#include "headrace/error.h"
#include "unit/fault_scenarios.h"

namespace headrace::test {
namespace {

namespace fs = std::filesystem;

unsigned number_from(const char* variable, unsigned otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

bool every_way() {
  const char* text = std::getenv("HEADRACE_FAULTS");
  return text != nullptr && std::string(text) == "all";
}

// Without that of /proc/<process>/statm, where a thread of ThreadSanitizer's looks how much memory
// there is.
std::ptrdiff_t open_descriptors() {
  return std::ranges::count_if(fs::directory_iterator("/proc/self/fd"), [](const auto& entry) {
    std::error_code closed;
    const std::string file = fs::read_symlink(entry.path(), closed);
    return !closed && !file.ends_with("/statm");
  });
}

std::string temporaries(const std::string& root) {
  std::string names;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(".headrace-tmp-")) names += name + ' ';
  }
  return names;
}

class FaultsTest : public testing::TestWithParam<FaultScenario> {
 protected:
  // A fresh start, then act() under what `arm` sets; whether act() came to its end.
  template <typename Arm>
  bool run(SystemFaults& faults, Arm&& arm) {
    fs::remove_all(root_);
    fs::create_directory(root_);
    GetParam().prepare(root_);
    const std::ptrdiff_t before = open_descriptors();
    bool done = false;
    arm();
    try {
      GetParam().act(root_);
      done = true;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find(root_), std::string::npos) << "names no object: " << what;
      EXPECT_GT(faults.injected(), 0) << what;
    }
    faults.stop();
    runs_ += faults.injected() > 0;
    EXPECT_EQ(open_descriptors(), before) << "descriptors";
    if (!faults.spoiled_removal()) {
      EXPECT_EQ(temporaries(root_), "");
    }
    GetParam().check(root_, done);
    return done;
  }

  // For long_runs.py.
  void TearDown() override { RecordProperty("faulty_runs", std::to_string(runs_)); }

  TempFolder folder_{fast_directory_path()};
  const std::string root_ = folder_ / "root";
  const ConfigGuard guard_;
  long runs_ = 0;  // with a fault
};

TEST_P(FaultsTest, NthCall) {
  set_threads(1);
  SystemFaults faults;
  unsigned start = 0;
  // Of a thousand calls most are alike: some are left out where not every way is asked for.
  for (long n = 1;; n += every_way() ? 1 : 1 + n / 50) {
    unsigned ways = 1;
    for (unsigned way = 0; way < ways; ++way) {
      const unsigned chosen = start + way;
      run(faults, [&] { faults.fail_nth(n, chosen); });
      if (faults.ways() == 0) return;  // it has no nth call
      if (chosen >= faults.ways()) {   // begin again with the first
        start = 0;
        way = static_cast<unsigned>(-1);
        continue;
      }
      ASSERT_FALSE(HasFailure()) << "call " << n << ", " << faults.story();
      if (every_way()) ways = faults.ways();
    }
    start = every_way() ? 0 : start + 1;
  }
}

// A disk that is full or broken from some call on, a process that may open no more files.
TEST_P(FaultsTest, FromNthCallOn) {
  set_threads(1);
  SystemFaults faults;
  for (const int error : {ENOSPC, EIO, EROFS, EMFILE}) {
    for (long n = 1;; n += every_way() ? 1 : 1 + n / 3) {
      run(faults, [&] { faults.fail_from(n, error); });
      if (faults.ways() == 0) break;  // it has no nth call
      if (GetParam().repeatable && !HasFailure()) {
        GetParam().act(root_);
        GetParam().check(root_, true);
      }
      ASSERT_FALSE(HasFailure()) << "from call " << n << ", " << faults.story();
    }
  }
}

TEST_P(FaultsTest, RandomSchedules) {
  const auto scenarios = static_cast<unsigned>(fault_scenarios().size());
  const unsigned schedules = number_from("HEADRACE_FAULT_SCHEDULES", 200) / scenarios + 1;
  SystemFaults faults;
  for (unsigned seed = 0; seed < schedules; ++seed) {
    set_threads(seed % 2 == 0 ? 1 : 4);
    const unsigned one_in = 4u << seed % 5;
    const bool done = run(faults, [&] { faults.fail_at_random(seed, one_in); });
    if (GetParam().repeatable && !HasFailure()) {
      GetParam().act(root_);
      GetParam().check(root_, true);
    } else if (!done && !HasFailure()) {
      GetParam().check(root_, false);
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed << ", one in " << one_in << ": "
                               << faults.story();
  }
}

INSTANTIATE_TEST_SUITE_P(Stores,
                         FaultsTest,
                         testing::ValuesIn(fault_scenarios()),
                         [](const auto& scenario) { return std::string(scenario.param.name); });

}  // namespace
}  // namespace headrace::test
