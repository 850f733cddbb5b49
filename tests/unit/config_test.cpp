#include "headrace/config.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/thread_pool.h"
#include "engine/request/config.h"
#include "headrace/error.h"

namespace headrace {
namespace {

class ConfigTest : public testing::Test {
 protected:
  ConfigTest() : before_(config()) {
    for (const auto* name : {"HEADRACE_THREADS",
                             "HEADRACE_MEMORY_BUDGET",
                             "HEADRACE_IO_DEPTH",
                             "HEADRACE_DEVICE",
                             "HEADRACE_FORCE_CODEC"}) {
      const char* value = std::getenv(name);
      saved_[name] = value ? std::optional<std::string>(value) : std::nullopt;
      unsetenv(name);
    }
  }
  ~ConfigTest() override {
    set_config(before_);
    for (const auto& [name, value] : saved_) {
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
    }
  }

  static std::string message_of_environment(const char* name, const char* value) {
    setenv(name, value, 1);
    std::string message;
    try {
      config_from_environment();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      message = e.what();
    }
    unsetenv(name);
    return message;
  }

 private:
  Config before_;
  std::map<std::string, std::optional<std::string>> saved_;
};

TEST_F(ConfigTest, ComesFromTheEnvironment) {
  setenv("HEADRACE_THREADS", "3", 1);
  setenv("HEADRACE_MEMORY_BUDGET", "16MiB", 1);
  setenv("HEADRACE_IO_DEPTH", "200", 1);
  setenv("HEADRACE_DEVICE", "cuda:1", 1);
  setenv("HEADRACE_FORCE_CODEC", "zstd:libzstd,blosc:headrace", 1);
  const Config c = config_from_environment();
  EXPECT_EQ(c.threads, 3);
  EXPECT_EQ(c.memory_budget, std::size_t{16} << 20);
  EXPECT_EQ(c.io_depth, 200u);
  EXPECT_EQ(c.device, "cuda:1");
  EXPECT_EQ(c.implementations, (Implementations{{"zstd", "libzstd"}, {"blosc", "headrace"}}));
}

TEST_F(ConfigTest, NamesTheVariableThatIsWrong) {
  for (const auto* value : {"many", "0", "65537", "-1", ""}) {
    EXPECT_NE(message_of_environment("HEADRACE_IO_DEPTH", value), "") << value;
  }
  for (const auto* value : {"three", "3x", "", "-1", "5000"}) {
    EXPECT_NE(message_of_environment("HEADRACE_THREADS", value), "") << value;
  }
  for (const auto* value : {"", "1MB", "-5", "99999999999GiB", "99999999999999999999"}) {
    EXPECT_NE(message_of_environment("HEADRACE_MEMORY_BUDGET", value), "") << value;
  }
  EXPECT_NE(message_of_environment("HEADRACE_DEVICE", "gpu"), "");
  for (const auto* value : {"zstd", "zstd:", ":libzstd", "zstd:libzstd,,"}) {
    EXPECT_NE(message_of_environment("HEADRACE_FORCE_CODEC", value).find("HEADRACE_FORCE_CODEC"),
              std::string::npos)
        << value;
  }
}

TEST_F(ConfigTest, RefusesImplementationsThatTheTableLacks) {
  EXPECT_NE(message_of_environment("HEADRACE_FORCE_CODEC", "zstd:nothing").find("libzstd"),
            std::string::npos);
  Config c;
  c.implementations = {{"no-such-codec", "x"}};
  EXPECT_THROW(set_config(c), Error);
  c = {};
  c.threads = -1;
  EXPECT_THROW(set_config(c), Error);
  c = {};
  c.gds = "yes";
  EXPECT_THROW(set_config(c), Error);
}

TEST_F(ConfigTest, InstallsTheThreads) {
  Config c = config();
  c.threads = 5;
  set_config(c);
  EXPECT_EQ(thread_count(), 5);
  EXPECT_EQ(config().threads, 5);
}

TEST_F(ConfigTest, TheBudgetGrowsWithTheThreadsUnlessItIsSet) {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  Config c;
  for (const auto& [threads, budget] :
       {std::pair{1, 64 * kMiB}, {2, 64 * kMiB}, {16, 512 * kMiB}}) {
    c.threads = threads;
    set_config(c);
    EXPECT_EQ(memory_budget(config()), budget) << threads;
  }
  c.memory_budget = kMiB;
  set_config(c);
  EXPECT_EQ(memory_budget(config()), kMiB);
}

TEST_F(ConfigTest, TheCallGoesBeforeTheHandleBeforeTheConfiguration) {
  Config c;
  c.implementations = {{"zstd", "libzstd"}};
  set_config(c);
  EXPECT_EQ(merged_implementations({}, {}), (Implementations{{"zstd", "libzstd"}}));
  EXPECT_EQ(merged_implementations({{"zstd", "handle"}, {"gzip", "handle"}}, {{"gzip", "call"}}),
            (Implementations{{"zstd", "handle"}, {"gzip", "call"}}));
  EXPECT_EQ(merged_implementations({{"numcodecs.zstd", "handle"}}, {}),
            (Implementations{{"zstd", "handle"}}));
}

}  // namespace
}  // namespace headrace
