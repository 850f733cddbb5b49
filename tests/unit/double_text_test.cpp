#include "base/double_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace headrace {
namespace {

TEST(DoubleText, IsReadAsFarAsItIsANumber) {
  struct Case {
    std::string text;
    std::size_t nbytes;
    double value;
  };
  for (const auto& [text, nbytes, value] :
       {Case{"0", 1, 0},
        {"-1.5", 4, -1.5},
        {"1e3", 3, 1000},
        {"2.5e-1x", 6, 0.25},
        {"1e", 1, 1},
        {"1.e", 2, 1},
        {"12.5.6", 4, 12.5},
        {"0x10", 1, 0},
        {"5e-324", 6, 5e-324},
        {"0.1", 3, 0.1},
        {"1.7976931348623157e308", 22, std::numeric_limits<double>::max()}}) {
    double found = 7;
    const auto [end, error] = double_from_chars(text.data(), text.data() + text.size(), found);
    EXPECT_EQ(error, std::errc()) << text;
    EXPECT_EQ(end - text.data(), nbytes) << text;
    EXPECT_EQ(found, value) << text;
  }
}

TEST(DoubleText, SaysWhatIsNone) {
  for (const std::string text : {"", "-", ".", "e5", " 1", "+1", "-e"}) {
    double found = 7;
    const auto [end, error] = double_from_chars(text.data(), text.data() + text.size(), found);
    EXPECT_EQ(error, std::errc::invalid_argument) << text;
    EXPECT_EQ(end, text.data()) << text;
  }
  for (const std::string text : {"1e400", "-1e400", "1e-400"}) {
    double found = 7;
    const auto [end, error] = double_from_chars(text.data(), text.data() + text.size(), found);
    EXPECT_EQ(error, std::errc::result_out_of_range) << text;
    EXPECT_EQ(end, text.data() + text.size()) << text;
  }
}

}  // namespace
}  // namespace headrace
