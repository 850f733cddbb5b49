#include "cli/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <type_traits>

#include "cli/elements.h"

namespace headrace::cli {
namespace {

// A byte string up to its padding, or a UTF-32 one, in quotes.
std::string text_element(const DType& dtype, const std::byte* p) {
  std::string result;
  if (dtype.kind() == DType::Kind::fixed_bytes) {
    result.assign(reinterpret_cast<const char*>(p), dtype.itemsize());
    result.resize(result.find_last_not_of('\0') + 1);
  } else {
    for (std::size_t i = 0; i + 4 <= dtype.itemsize(); i += 4) {
      const auto c = load_element<std::uint32_t>(p + i);
      if (c == 0) break;
      if (c < 0x80) {
        result += static_cast<char>(c);
      } else if (c < 0x800) {
        result += {static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))};
      } else if (c < 0x10000) {
        result += {static_cast<char>(0xe0 | c >> 12),
                   static_cast<char>(0x80 | (c >> 6 & 0x3f)),
                   static_cast<char>(0x80 | (c & 0x3f))};
      } else {
        result += {static_cast<char>(0xf0 | (c >> 18 & 7)),
                   static_cast<char>(0x80 | (c >> 12 & 0x3f)),
                   static_cast<char>(0x80 | (c >> 6 & 0x3f)),
                   static_cast<char>(0x80 | (c & 0x3f))};
      }
    }
  }
  return json_text(Json(result));
}

// Strings in quotes, values of JSON as they are, other bytes as hex digits.
std::string vlen_element(const DType& dtype, const std::byte* p) {
  const auto element = load_element<VlenElement>(p);
  if (dtype.kind() == DType::Kind::object) return printable(element.text());
  if (dtype.kind() == DType::Kind::string) return json_text(Json(element.text()));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(element.data);
  return fmt::format("0x{:02x}", fmt::join(bytes, bytes + element.nbytes, ""));
}

template <typename T>
void append_complex(std::string& text, const std::byte* p) {
  fmt::format_to(
      std::back_inserter(text), "{}{:+}j", load_element<T>(p), load_element<T>(p + sizeof(T)));
}

template <typename T>
void append_number(std::string& text, T value) {
  if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>) {
    fmt::format_to(std::back_inserter(text), "{}", value);
  } else {
    fmt::format_to(std::back_inserter(text), "{}", static_cast<float>(value));
  }
}

// Calls each(append) with what appends one element of the type.
template <typename Each>
void with_formatter(const DType& dtype, Each&& each) {
  switch (dtype.kind()) {
    case DType::Kind::boolean:
      return each([](std::string& text, const std::byte* p) {
        text += *p == std::byte{0} ? "false" : "true";
      });
    case DType::Kind::complex:
      if (dtype.itemsize() == 8) return each(append_complex<float>);
      return each(append_complex<double>);
    case DType::Kind::datetime:
    case DType::Kind::timedelta:
      return each([](std::string& text, const std::byte* p) {
        const auto ticks = load_element<std::int64_t>(p);
        if (ticks == INT64_MIN) {
          text += "NaT";
        } else {
          append_number(text, ticks);
        }
      });
    case DType::Kind::fixed_bytes:
    case DType::Kind::fixed_utf32:
      return each([&](std::string& text, const std::byte* p) { text += text_element(dtype, p); });
    case DType::Kind::string:
    case DType::Kind::bytes:
    case DType::Kind::object:
    case DType::Kind::array:
      return each([&](std::string& text, const std::byte* p) { text += vlen_element(dtype, p); });
    default:
      return with_number_type(dtype, "text", [&](auto tag) {
        using T = decltype(tag);
        each(
            [](std::string& text, const std::byte* p) { append_number(text, load_element<T>(p)); });
      });
  }
}

}  // namespace

TextWriter::TextWriter(Output& out, const Shape& shape) : out_(out) {
  if (!shape.empty()) row_ = std::max<std::int64_t>(shape.back(), 1);
  if (shape.size() > 2) plane_ = row_ * std::max<std::int64_t>(shape[shape.size() - 2], 1);
}

void TextWriter::separate(std::string& text) {
  if (written_ == 0) return;
  if (written_ % row_ != 0) {
    text += ' ';
    return;
  }
  text += plane_ > 0 && written_ % plane_ == 0 ? "\n\n" : "\n";
}

void TextWriter::put(const Tensor& part) {
  const auto* data = static_cast<const std::byte*>(part.data());
  const std::size_t itemsize = part.dtype().itemsize();
  const std::size_t n = part.view().size();
  with_formatter(part.dtype(), [&](auto append) {
    std::string text;
    for (std::size_t i = 0; i < n; ++i) {
      separate(text);
      append(text, data + i * itemsize);
      ++written_;
      if (text.size() > 60000) {
        out_.write(text);
        text.clear();
      }
    }
    out_.write(text);
  });
}

}  // namespace headrace::cli
