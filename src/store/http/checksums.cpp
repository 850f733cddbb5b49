#include "store/http/checksums.h"

#include <openssl/evp.h>

#include <array>
#include <cstdint>
#include <new>

#include "base/crc32c.h"
#include "headrace/error.h"
#include "store/http/content_range.h"

namespace headrace {

namespace {

std::string md5(ConstBytes bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned nbytes = 0;
  // Null where a policy of the machine forbids it: then it is not compared.
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &nbytes, EVP_md5(), nullptr) != 1) {
    return "";
  }
  return {reinterpret_cast<const char*>(digest.data()), nbytes};
}

std::string big_endian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

bool is_crc32c(std::string_view text, ConstBytes body) {
  const std::string wanted = from_base64(text);
  return wanted.size() != 4 || wanted == big_endian(crc32c(body));
}

bool is_md5(std::string_view text, ConstBytes body) {
  const std::string wanted = from_base64(text);
  if (wanted.size() != 16) return true;
  const std::string found = md5(body);
  return found.empty() || found == wanted;
}

// "crc32c=n03x6A==,md5=Ojk9c3dhfxgoKVVHYwFbHQ==" (https://cloud.google.com/storage/docs/xml-api),
// of the object as it is stored.
bool is_goog_hash(std::string_view text, ConstBytes body) {
  constexpr std::string_view kName = "crc32c=";
  const std::size_t at = text.find(kName);
  if (at == text.npos) return true;
  const std::string_view value = text.substr(at + kName.size());
  return is_crc32c(value.substr(0, value.find(',')), body);
}

}  // namespace

const char* wrong_checksum(const HttpResponse& response, ConstBytes body) {
  // One check is enough, and MD5 is ten times as slow.
  bool checked = false;
  if (const std::string* text = response.header("x-amz-checksum-crc32c")) {
    // Of an object in parts it is one of their checksums, "...-3".
    if (text->find('-') == text->npos) {
      if (!is_crc32c(*text, body)) return "x-amz-checksum-crc32c";
      checked = true;
    }
  }
  const std::string* stored = response.header("x-goog-stored-content-encoding");
  if (stored == nullptr || *stored == "identity") {
    for (const HttpHeader& header : response.headers) {
      if (!same_name(header.name, "x-goog-hash")) continue;
      if (!is_goog_hash(header.value, body)) return "x-goog-hash";
      checked |= header.value.find("crc32c=") != header.value.npos;
    }
  }
  if (checked) return nullptr;
  const std::string* text = response.header("Content-MD5");
  return text == nullptr || is_md5(*text, body) ? nullptr : "Content-MD5";
}

std::string base64(ConstBytes bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  const int n = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                reinterpret_cast<const unsigned char*>(bytes.data()),
                                static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(n));
  return text;
}

std::string from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0 || text.size() > 4096) return "";
  std::string bytes(text.size() / 4 * 3, '\0');
  const int n = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                reinterpret_cast<const unsigned char*>(text.data()),
                                static_cast<int>(text.size()));
  if (n < 0) return "";
  // The library counts what stands for nothing as zeros.
  std::size_t size = static_cast<std::size_t>(n);
  for (std::size_t i = text.size(); i > 0 && text[i - 1] == '=' && size > 0; --i) --size;
  bytes.resize(size);
  return bytes;
}

}  // namespace headrace
