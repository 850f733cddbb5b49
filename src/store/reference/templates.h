#pragma once

// The strings of version 1 that are evaluated: "{{...}}" of jinja, as far as kerchunk's
// specification uses it. Known are numbers, strings, names of templates and variables, calls of
// templates, + - * // % ~ and brackets. `unsupported` for more of jinja than that, `corrupt` for
// what is wrong in it, too.
// https://fsspec.github.io/kerchunk/spec.html

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

namespace headrace {

using TemplateValue = std::variant<std::int64_t, std::string>;
using TemplateValues = std::map<std::string, TemplateValue, std::less<>>;
using Templates = std::map<std::string, std::string, std::less<>>;

// What all strings of one file may take to evaluate: generators evaluate theirs again and again,
// and a template is the text of many URLs.
class TemplateWork {
 public:
  explicit TemplateWork(std::uint64_t most = UINT64_MAX) : most_(most) {}

  // Characters that were looked at or made. `corrupt` for more than the most. Looks at the caller's
  // interrupt (base/interrupt.h) now and then.
  void spend(std::size_t nchars);

 private:
  const std::uint64_t most_;
  std::uint64_t spent_ = 0;
  std::uint64_t next_check_ = 0;
};

std::string render_template(std::string_view text,
                            const Templates& templates,
                            const TemplateValues& variables,
                            TemplateWork& work);

}  // namespace headrace
