// What is said of GPUDirect Storage, by a cuFile that tests/fake builds: there is no way to have
// the real one find its driver here.

#include "device/cufile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace headrace {
namespace {

Cufile open(const char* finds) {
  ::setenv("FAKE_CUFILE", finds, 1);
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return open_cufile((folder / "libfake_cufile.so").string());
}

TEST(Cufile, IsUsedWhereTheDriverIsNative) {
  const Cufile nvidia_fs = open("nvidia-fs");
  EXPECT_TRUE(nvidia_fs.native()) << nvidia_fs.why_not;
  EXPECT_EQ(nvidia_fs.driver, "nvidia-fs 2.26");
  const Cufile p2p = open("p2p");
  EXPECT_TRUE(p2p.native()) << p2p.why_not;
  EXPECT_EQ(p2p.driver, "PCI P2PDMA");
}

TEST(Cufile, IsNeverUsedInCompatibilityMode) {
  for (const auto& [finds, why] :
       {std::pair{"nothing", "error 5001 with the compatibility mode refused"},
        std::pair{"insists", "insists on its compatibility mode"},
        std::pair{"", "neither nvidia-fs nor PCI P2PDMA"}}) {
    const Cufile found = open(finds);
    EXPECT_FALSE(found.native()) << finds;
    EXPECT_THAT(found.why_not, testing::HasSubstr(why)) << finds;
  }
}

TEST(Cufile, SaysWhatIsMissing) {
  EXPECT_THAT(open_cufile("/nowhere/libcufile.so.0").why_not, testing::HasSubstr("/nowhere"));
  EXPECT_THAT(open_cufile("libm.so.6").why_not, testing::HasSubstr("lacks functions"));
}

}  // namespace
}  // namespace headrace
