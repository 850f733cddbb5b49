#pragma once

// The strings of version 1 that are evaluated: "{{...}}" of jinja, as far as kerchunk's
// specification uses it. Known are numbers, strings, names of templates and variables, calls of
// templates, + - * // % ~ and brackets. `unsupported` for more of jinja than that, `corrupt` for
// what is wrong in it, too.
// https://fsspec.github.io/kerchunk/spec.html

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>

namespace headrace {

using TemplateValue = std::variant<std::int64_t, std::string>;
using TemplateValues = std::map<std::string, TemplateValue, std::less<>>;
using Templates = std::map<std::string, std::string, std::less<>>;

std::string render_template(std::string_view text,
                            const Templates& templates,
                            const TemplateValues& variables);

}  // namespace headrace
