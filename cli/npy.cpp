#include "cli/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "headrace/dtype.h"
#include "headrace/error.h"

namespace headrace::cli {
namespace {

bool is_ascii(const std::string& text) {
  return std::all_of(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string python_literal(const std::string& text) {
  std::string result = "'";
  for (const char c : text) {
    if (const auto code = static_cast<unsigned char>(c); code < 0x20 || code == 0x7f) {
      result += fmt::format("\\x{:02x}", code);
      continue;
    }
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + '\'';
}

std::string tuple(const Shape& shape) {
  std::string text = "(";
  for (std::size_t d = 0; d < shape.size(); ++d) text += (d ? ", " : "") + std::to_string(shape[d]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string descr(const DType& dtype, bool big_endian);

std::string padding(std::size_t nbytes) { return "('', '|V" + std::to_string(nbytes) + "'), "; }

std::string fields_descr(const DType& dtype) {
  std::string text = "[";
  std::size_t at = 0;
  for (const StructField& field : dtype.fields()) {
    if (field.offset_bytes < at) {
      throw Error(ErrorCode::unsupported,
                  "npy: the fields of " + dtype.to_string() + " overlap or are out of order");
    }
    if (field.offset_bytes > at) text += padding(field.offset_bytes - at);
    text += '(' + python_literal(field.name) + ", " + descr(field.dtype, field.big_endian);
    if (!field.shape.empty()) text += ", " + tuple(field.shape);
    text += "), ";
    std::size_t nbytes = field.dtype.itemsize();
    for (const std::int64_t extent : field.shape) nbytes *= static_cast<std::size_t>(extent);
    at = field.offset_bytes + nbytes;
  }
  if (dtype.itemsize() > at) text += padding(dtype.itemsize() - at);
  return text + ']';
}

std::string descr(const DType& dtype, bool big_endian) {
  if (dtype.kind() == DType::Kind::structure) return fields_descr(dtype);
  std::string text = dtype.numpy_str();
  if (text.empty()) throw Error(ErrorCode::unsupported, "npy: not for " + dtype.to_string());
  if (big_endian && text[0] == '<') text[0] = '>';
  return python_literal(text);
}

template <typename T>
std::string little_endian(std::size_t value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>((value >> (8 * i)) & 0xff);
  return bytes;
}

}  // namespace

std::string npy_header(const DType& dtype, const Shape& shape) {
  std::string dict = "{'descr': " + descr(dtype, false) +
                     ", 'fortran_order': False, 'shape': " + tuple(shape) + ", }";
  // Version 1 counts the header in two bytes, 2 in four, 3 is UTF-8. All of it is padded with
  // spaces to a multiple of 64 and ends with a newline.
  constexpr std::size_t kAlignment = 64;
  constexpr std::size_t kMagic = 8;
  const int version = !is_ascii(dict) ? 3 : dict.size() + kAlignment > UINT16_MAX ? 2 : 1;
  const std::size_t prefix = kMagic + (version == 1 ? 2 : 4);
  const std::size_t total = (prefix + dict.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
  dict.append(total - prefix - dict.size() - 1, ' ');
  dict += '\n';
  std::string header = "\x93NUMPY";
  header += static_cast<char>(version);
  header += '\0';
  header += version == 1 ? little_endian<std::uint16_t>(dict.size())
                         : little_endian<std::uint32_t>(dict.size());
  return header + dict;
}

}  // namespace headrace::cli
