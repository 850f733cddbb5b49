#include "cli/selection_text.h"

#include <gtest/gtest.h>

#include <string>

#include "headrace/error.h"

namespace headrace::cli {
namespace {

std::string text_of(const SelectionItem& item) {
  const auto number = [](const std::optional<std::int64_t>& n) {
    return n ? std::to_string(*n) : "_";
  };
  if (const auto* i = std::get_if<std::int64_t>(&item)) return std::to_string(*i);
  if (const auto* s = std::get_if<Slice>(&item)) {
    return number(s->start) + ":" + number(s->stop) + ":" + std::to_string(s->step);
  }
  if (std::holds_alternative<NewAxis>(item)) return "None";
  if (std::holds_alternative<Ellipsis>(item)) return "...";
  return "?";
}

std::string parsed(std::string_view text) {
  std::string result;
  for (const SelectionItem& item : parse_selection(text)) result += text_of(item) + " ";
  return result;
}

TEST(SelectionText, ReadsWhatNumPyWrites) {
  EXPECT_EQ(parsed("0:2,:,5"), "0:2:1 _:_:1 5 ");
  EXPECT_EQ(parsed("::-1"), "_:_:-1 ");
  EXPECT_EQ(parsed("-3:-1:2"), "-3:-1:2 ");
  EXPECT_EQ(parsed("1::3"), "1:_:3 ");
  EXPECT_EQ(parsed("..., 4"), "... 4 ");
  EXPECT_EQ(parsed("None,3,newaxis"), "None 3 None ");
  EXPECT_EQ(parsed(" [ 1 , +2 ] "), "1 2 ");
  EXPECT_EQ(parsed("7,"), "7 ");
  EXPECT_EQ(parsed("9223372036854775807"), "9223372036854775807 ");
}

TEST(SelectionText, NothingIsEverything) {
  EXPECT_EQ(parsed(""), "");
  EXPECT_EQ(parsed("  "), "");
  EXPECT_EQ(parsed("[]"), "");
}

TEST(SelectionText, NamesTheItemThatIsWrong) {
  for (const std::string bad : {"x",
                                "1,,2",
                                ",1",
                                "1:2:3:4",
                                "1:2:0",
                                "1.5",
                                "..,1",
                                "...,...",
                                "1 2",
                                "++1",
                                "+-1",
                                "+",
                                "-",
                                "0x10",
                                "9223372036854775808",
                                "a:b",
                                ":::",
                                "[1",
                                "none"}) {
    try {
      parse_selection(bad);
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << bad;
      EXPECT_NE(std::string(e.what()).find("selection"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace headrace::cli
