#include "base/trace.h"

#include <gtest/gtest.h>

#include <string>

namespace headrace {
namespace {

std::string calls;

constexpr RangeHooks kHooks{[](const char* name) { calls += "(" + std::string(name); },
                            [] { calls += ")"; }};

TEST(Span, IsARangeOfAProfiler) {
  const Span before("before");
  set_range_hooks(&kHooks);
  {
    const Span outer("plan");
    const Span inner("fetch", 7);
  }
  const Span cut("cut");
  set_range_hooks(nullptr);
  { const Span after("after"); }
  EXPECT_EQ(calls, "(plan(fetch))(cut");
}

}  // namespace
}  // namespace headrace
