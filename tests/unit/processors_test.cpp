#include "base/processors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/available_memory.h"
#include "support/portable.h"

namespace headrace {
namespace {

namespace fs = std::filesystem;

// A machine's /proc and /sys, as far as groups of processes go.
class Groups : public testing::Test {
 protected:
  Groups() {
    fs::remove_all(root_);
    put("/proc/self/mountinfo", "22 27 0:20 / /proc rw shared:1 - proc proc rw\n");
  }
  ~Groups() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root_ + path).parent_path());
    std::ofstream(root_ + path, std::ios::app) << text;
  }
  void mount_v2(const std::string& root = "/", const std::string& point = "/sys/fs/cgroup") {
    put("/proc/self/mountinfo",
        "31 22 0:27 " + root + " " + point + " rw,nosuid shared:9 master:4 - cgroup2 cgroup2 rw\n");
  }
  void mount_v1(const std::string& root = "/") {
    put("/proc/self/mountinfo",
        "35 22 0:31 " + root +
            " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
            "36 22 0:32 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n");
  }
  void quota_v1(const std::string& group, const std::string& quota, const std::string& period) {
    put("/sys/fs/cgroup/cpu,cpuacct" + group + "/cpu.cfs_quota_us", quota + "\n");
    put("/sys/fs/cgroup/cpu,cpuacct" + group + "/cpu.cfs_period_us", period + "\n");
  }
  int found() const { return cgroup_processors(root_); }

  const std::string root_ = testing::TempDir() + "headrace_groups_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(Groups, NoneIsNoQuota) {
  EXPECT_EQ(found(), 0);
  mount_v2();
  EXPECT_EQ(found(), 0);
  put("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(found(), 0);
}

TEST_F(Groups, QuotaOfTheRootOfAContainer) {
  SKIP_IF_PORTABLE("control groups");
  mount_v2();
  put("/proc/self/cgroup", "0::/\n");
  put("/sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(found(), 3);
}

TEST_F(Groups, QuotaOfASlice) {
  SKIP_IF_PORTABLE("control groups");
  mount_v2();
  put("/proc/self/cgroup", "0::/user.slice/run-7.scope\n");
  put("/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
  put("/sys/fs/cgroup/user.slice/run-7.scope/cpu.max", "200000 100000\n");
  EXPECT_EQ(found(), 2);
}

TEST_F(Groups, LeastQuotaOnTheWayCounts) {
  SKIP_IF_PORTABLE("control groups");
  mount_v2();
  put("/proc/self/cgroup", "0::/a/b/c\n");
  put("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  put("/sys/fs/cgroup/a/b/cpu.max", "800000 100000\n");
  put("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  EXPECT_EQ(found(), 2);
}

TEST_F(Groups, MountThatBeginsAtTheGroup) {
  SKIP_IF_PORTABLE("control groups");
  mount_v2("/docker/1234");
  put("/proc/self/cgroup", "0::/docker/1234/inner\n");
  put("/sys/fs/cgroup/inner/cpu.max", "400000 100000\n");
  put("/sys/fs/cgroup/cpu.max", "600000 100000\n");
  EXPECT_EQ(found(), 4);
}

TEST_F(Groups, OldQuota) {
  SKIP_IF_PORTABLE("control groups");
  mount_v1();
  put("/proc/self/cgroup", "12:cpuset:/x\n4:cpu,cpuacct:/system/job\n1:name=systemd:/system/job\n");
  quota_v1("/system/job", "-1", "100000");
  EXPECT_EQ(found(), 0);
  quota_v1("/system", "50000", "25000");
  EXPECT_EQ(found(), 2);
}

TEST_F(Groups, BothKindsAtOnce) {
  SKIP_IF_PORTABLE("control groups");
  mount_v1();
  mount_v2("/", "/sys/fs/cgroup/unified");
  put("/proc/self/cgroup", "4:cpu,cpuacct:/job\n0::/job\n");
  quota_v1("/job", "500000", "100000");
  EXPECT_EQ(found(), 5);
}

TEST_F(Groups, MemoryThatIsLeft) {
  SKIP_IF_PORTABLE("control groups");
  EXPECT_EQ(available_memory(root_), std::nullopt);
  put("/proc/meminfo", "MemTotal:  90 kB\nMemFree:  10 kB\nMemAvailable:  80 kB\n");
  EXPECT_EQ(available_memory(root_), 80U << 10);
  mount_v2();
  put("/proc/self/cgroup", "0::/a/b\n");
  put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  put("/sys/fs/cgroup/a/b/memory.current", "9000\n");
  EXPECT_EQ(available_memory(root_), 80U << 10);
  put("/sys/fs/cgroup/a/memory.max", "20000\n");
  put("/sys/fs/cgroup/a/memory.current", "15000\n");
  EXPECT_EQ(available_memory(root_), 5000U);
  // Of files that were read and can be read again.
  put("/sys/fs/cgroup/a/memory.stat", "anon 8000\ninactive_file 2000\nactive_file 1000\n");
  EXPECT_EQ(available_memory(root_), 8000U);
  put("/proc/self/mountinfo", "37 22 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  put("/proc/self/cgroup", "5:memory:/job\n");
  put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "7000\n");
  put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "7500\n");
  EXPECT_EQ(available_memory(root_), 0U);
}

TEST_F(Groups, PointsWithSpaces) {
  SKIP_IF_PORTABLE("control groups");
  mount_v2("/", "/my\\040groups");
  put("/proc/self/cgroup", "0::/g\n");
  put("/my groups/g/cpu.max", "100000 100000\n");
  EXPECT_EQ(found(), 1);
}

TEST_F(Groups, NonsenseIsNoQuota) {
  mount_v2();
  put("/proc/self/mountinfo", "\n- - -\n1 2 3 - cgroup2\nx\n");
  put("/proc/self/cgroup", "0\n0:\n0::/../../etc\n");
  for (const char* text : {"", "max", "-5 100000", "100000 0", "1e99 1", "a b"}) {
    fs::remove(root_ + "/sys/fs/cgroup/cpu.max");
    put("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(found(), 0) << text;
  }
}

TEST(Processors, AreAtLeastOne) { EXPECT_GE(usable_processors(), 1); }

}  // namespace
}  // namespace headrace
