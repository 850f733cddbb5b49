#include "device/gpu_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headrace {
namespace {

using testing::HasSubstr;

constexpr const char* kWheel = "75-real;80-real;90-real;100-real;120";

TEST(GpuLimits, AllThatTheWheelHasCodeForRuns) {
  for (const ComputeCapability gpu : {ComputeCapability{7, 5},
                                      {8, 0},
                                      {8, 6},
                                      {8, 7},
                                      {8, 9},
                                      {9, 0},
                                      {10, 0},
                                      {10, 3},
                                      {12, 0},
                                      {12, 1},
                                      {13, 0}}) {
    EXPECT_EQ(why_no_code(gpu, kWheel), "") << gpu.major << '.' << gpu.minor;
  }
}

TEST(GpuLimits, OldGpusNeverRun) {
  for (const char* built_for : {kWheel, "70", "native", "50", ""}) {
    EXPECT_THAT(why_no_code({7, 0}, built_for), HasSubstr("compute capability 7.0"));
    EXPECT_THAT(why_no_code({7, 0}, built_for), HasSubstr("need 7.5"));
  }
}

TEST(GpuLimits, MachineCodeIsForOneMajorVersion) {
  EXPECT_THAT(why_no_code({8, 9}, "90-real"), HasSubstr("code for 90-real only"));
  EXPECT_THAT(why_no_code({8, 9}, "90-real"), HasSubstr("CMAKE_CUDA_ARCHITECTURES=89"));
  EXPECT_THAT(why_no_code({9, 0}, "80-real;100-real"), HasSubstr("80-real, 100-real"));
  EXPECT_THAT(why_no_code({11, 0}, kWheel), HasSubstr("compute capability 11.0"));
  EXPECT_THAT(why_no_code({8, 0}, "86-real"), HasSubstr("86-real")) << "newer of one major version";
  EXPECT_EQ(why_no_code({8, 9}, "86-real"), "");
}

TEST(GpuLimits, TheDriverCompilesForNewerOnes) {
  EXPECT_EQ(why_no_code({10, 0}, "90"), "");
  EXPECT_EQ(why_no_code({12, 0}, "80-virtual"), "");
  EXPECT_THAT(why_no_code({8, 0}, "90"), HasSubstr("code for 90 only"));
  EXPECT_EQ(why_no_code({8, 0}, "80-virtual;90-real"), "");
}

TEST(GpuLimits, VariantsAreForFewer) {
  EXPECT_EQ(why_no_code({9, 0}, "90a"), "");
  EXPECT_THAT(why_no_code({10, 0}, "90a"), HasSubstr("90a"));
  EXPECT_EQ(why_no_code({10, 3}, "100f"), "");
  EXPECT_THAT(why_no_code({10, 3}, "100a"), HasSubstr("100a"));
  EXPECT_THAT(why_no_code({12, 0}, "100f-real"), HasSubstr("100f-real"));
}

TEST(GpuLimits, WhatOnlyTheDriverKnowsIsLeftToIt) {
  for (const char* built_for : {"native", "all", "all-major", "", "90-real;native", "8x"})
    EXPECT_EQ(why_no_code({8, 9}, built_for), "") << built_for;
}

TEST(GpuLimits, PinnedMemoryGrowsWithTheDevicesInUse) {
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  EXPECT_EQ(pinned_kept_nbytes(1, 2048 * kGiB), 2 * kGiB);
  EXPECT_EQ(pinned_kept_nbytes(8, 2048 * kGiB), 16 * kGiB);
  EXPECT_EQ(pinned_kept_nbytes(0, 2048 * kGiB), 2 * kGiB);
  // A part of what the host has, but room for one reader.
  EXPECT_EQ(pinned_kept_nbytes(8, 64 * kGiB), 4 * kGiB);
  EXPECT_EQ(pinned_kept_nbytes(8, 4 * kGiB), kGiB / 2);
  EXPECT_EQ(pinned_kept_nbytes(8, 0), kGiB / 2);
}

}  // namespace
}  // namespace headrace
