#include "store/reference/templates.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/interrupt.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr int kMaxDepth = 50;                                         // of brackets and calls
constexpr std::size_t kMaxText = std::size_t{1} << 20;                // of what comes of one string
constexpr std::size_t kMaxPadding = 64;                               // of "%0Nd"
constexpr std::uint64_t kWorkBetweenChecks = std::uint64_t{1} << 22;  // some milliseconds
// Of a string or an expression, whatever its length.
constexpr std::size_t kLeastWork = 16;

bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string text_of_value(const TemplateValue& value) {
  if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
  return std::get<std::string>(value);
}

// One expression between braces.
class Expression {
 public:
  Expression(std::string_view text,
             const Templates& templates,
             const TemplateValues& variables,
             int depth,
             TemplateWork& work)
      : text_(text), templates_(templates), variables_(variables), depth_(depth), work_(work) {}

  TemplateValue evaluate() {
    TemplateValue value = joined();
    if (peek() != '\0') unknown();
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(ErrorCode::corrupt, "template {{" + std::string(text_) + "}}: " + why);
  }
  [[noreturn]] void unknown() const {
    throw Error(ErrorCode::unsupported,
                "template {{" + std::string(text_) + "}}: \"" + std::string(text_.substr(at_)) +
                    "\" is more of jinja than is known here (numbers, strings, names, calls of "
                    "templates, + - * // % ~)");
  }

  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n'))
      ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(std::string_view token) {
    peek();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  std::int64_t number_of(const TemplateValue& value) const {
    if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
    fail("\"" + std::get<std::string>(value) + "\" is no number");
  }

  TemplateValue joined() {
    TemplateValue value = sum();
    while (take("~")) {
      value = bounded(text_of_value(value) + text_of_value(sum()));
    }
    return value;
  }

  TemplateValue sum() {
    TemplateValue value = product();
    for (;;) {
      if (take("+")) {
        TemplateValue right = product();
        if (std::holds_alternative<std::string>(value) &&
            std::holds_alternative<std::string>(right)) {
          value = bounded(std::get<std::string>(value) + std::get<std::string>(right));
        } else {
          value = checked_add(number_of(value), number_of(right), "template");
        }
      } else if (take("-")) {
        std::int64_t difference = 0;
        if (__builtin_sub_overflow(number_of(value), number_of(product()), &difference)) {
          fail("past 2^63");
        }
        value = difference;
      } else {
        return value;
      }
    }
  }

  TemplateValue product() {
    TemplateValue value = unary();
    for (;;) {
      if (take("**")) unknown();
      if (take("*")) {
        const std::int64_t right = number_of(unary());
        value = checked_mul(number_of(value), right, "template");
      } else if (take("//")) {
        const auto [quotient, rest] = divided(number_of(value), number_of(unary()));
        value = quotient;
      } else if (take("%")) {
        if (const auto* format = std::get_if<std::string>(&value)) {
          value = formatted(*format, unary());
        } else {
          const auto [quotient, rest] = divided(number_of(value), number_of(unary()));
          value = rest;
        }
      } else {
        return value;
      }
    }
  }

  // As Python does it: downwards, the rest has the divisor's sign.
  std::pair<std::int64_t, std::int64_t> divided(std::int64_t a, std::int64_t b) const {
    if (b == 0) fail("a division by zero");
    if (a == INT64_MIN && b == -1) fail("past 2^63");
    std::int64_t quotient = a / b;
    std::int64_t rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) {
      --quotient;
      rest += b;
    }
    return {quotient, rest};
  }

  // "%03d" % i, of one value.
  std::string formatted(const std::string& format, const TemplateValue& value) const {
    std::string out;
    bool used = false;
    for (std::size_t i = 0; i < format.size(); ++i) {
      if (format[i] != '%') {
        out += format[i];
        continue;
      }
      if (++i < format.size() && format[i] == '%') {
        out += '%';
        continue;
      }
      const bool zeros = i < format.size() && format[i] == '0';
      std::size_t width = 0;
      while (i < format.size() && is_digit(format[i]) && width <= kMaxPadding) {
        width = width * 10 + static_cast<std::size_t>(format[i++] - '0');
      }
      if (i >= format.size() || (format[i] != 'd' && format[i] != 's') || used ||
          width > kMaxPadding) {
        throw Error(ErrorCode::unsupported, "template format \"" + format + "\"");
      }
      std::string text = format[i] == 'd' ? std::to_string(number_of(value)) : text_of_value(value);
      const std::size_t padding = width > text.size() ? width - text.size() : 0;
      const bool negative = zeros && text.starts_with('-');
      text.insert(negative ? 1 : 0, padding, zeros && format[i] == 'd' ? '0' : ' ');
      out += text;
      used = true;
    }
    return bounded(out);
  }

  std::string bounded(std::string text) const {
    if (text.size() > kMaxText) fail("gives more than 2^20 characters");
    work_.spend(text.size());
    return text;
  }

  TemplateValue unary() {
    if (depth_ > kMaxDepth) fail("is nested too deep");
    if (take("-")) {
      const std::int64_t value = number_of(nested([&] { return unary(); }));
      if (value == INT64_MIN) fail("past 2^63");
      return -value;
    }
    const char c = peek();
    if (c == '(') {
      ++at_;
      TemplateValue value = nested([&] { return joined(); });
      if (!take(")")) unknown();
      return value;
    }
    if (c == '\'' || c == '"') return literal(c);
    if (is_digit(c)) {
      std::int64_t value = 0;
      while (at_ < text_.size() && is_digit(text_[at_])) {
        value = checked_add<std::int64_t>(
            checked_mul<std::int64_t>(value, 10, "template"), text_[at_++] - '0', "template");
      }
      if (at_ < text_.size() && text_[at_] == '.') unknown();
      return value;
    }
    if (starts_name(c)) return named();
    unknown();
  }

  template <typename F>
  TemplateValue nested(F&& inner) {
    ++depth_;
    TemplateValue value = inner();
    --depth_;
    return value;
  }

  std::string literal(char quote) {
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail("a string has no end");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    if (value.find('\\') != std::string::npos) unknown();
    at_ = end + 1;
    return value;
  }

  std::string_view name() {
    const std::size_t start = at_;
    while (at_ < text_.size() && (starts_name(text_[at_]) || is_digit(text_[at_]))) ++at_;
    return text_.substr(start, at_ - start);
  }

  TemplateValue named() {
    const std::string_view wanted = name();
    if (const auto variable = variables_.find(wanted); variable != variables_.end()) {
      return variable->second;
    }
    const auto found = templates_.find(wanted);
    if (found == templates_.end()) fail("\"" + std::string(wanted) + "\" is not defined");
    TemplateValues arguments;
    if (take("(")) {
      while (!take(")")) {
        if (!arguments.empty() && !take(",")) unknown();
        peek();
        const std::string argument(name());
        if (argument.empty() || !take("=")) unknown();
        arguments[argument] = nested([&] { return joined(); });
      }
    } else if (found->second.find("{{") != std::string::npos) {
      fail("\"" + std::string(wanted) + "\" wants arguments");
    }
    return render(found->second, {}, arguments, depth_ + 1, work_);
  }

 public:
  static std::string render(std::string_view text,
                            const Templates& templates,
                            const TemplateValues& variables,
                            int depth,
                            TemplateWork& work) {
    work.spend(kLeastWork + text.size());
    std::string out;
    while (!text.empty()) {
      const std::size_t open = text.find('{');
      out += text.substr(0, open);
      if (open == std::string_view::npos) break;
      text.remove_prefix(open);
      if (text.starts_with("{%") || text.starts_with("{#")) {
        throw Error(ErrorCode::unsupported,
                    "template \"" + std::string(text.substr(0, 100)) +
                        "\": of jinja only {{...}} is known");
      }
      if (!text.starts_with("{{")) {
        out += '{';
        text.remove_prefix(1);
        continue;
      }
      const std::size_t close = text.find("}}");
      if (close == std::string_view::npos) {
        throw Error(ErrorCode::corrupt, "a template has {{ without }}");
      }
      work.spend(kLeastWork);
      out += text_of_value(
          Expression(text.substr(2, close - 2), templates, variables, depth, work).evaluate());
      if (out.size() > kMaxText) {
        throw Error(ErrorCode::corrupt, "a template gives more than 2^20 characters");
      }
      text.remove_prefix(close + 2);
    }
    work.spend(out.size());
    return out;
  }

 private:
  std::string_view text_;
  const Templates& templates_;
  const TemplateValues& variables_;
  int depth_;
  TemplateWork& work_;
  std::size_t at_ = 0;
};

}  // namespace

void TemplateWork::spend(std::size_t nchars) {
  spent_ += nchars;
  if (spent_ > most_) {
    throw Error(ErrorCode::corrupt,
                "to evaluate its templates and generators takes more than " +
                    std::to_string(most_) + " characters");
  }
  if (spent_ < next_check_) return;
  next_check_ = spent_ + kWorkBetweenChecks;
  if (const auto* const interrupt = current_interrupt()) (*interrupt)();
}

std::string render_template(std::string_view text,
                            const Templates& templates,
                            const TemplateValues& variables,
                            TemplateWork& work) {
  return Expression::render(text, templates, variables, 0, work);
}

}  // namespace headrace
