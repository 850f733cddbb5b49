#include "store/cloud/digest.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>

#include "base/crc32c.h"
#include "headrace/error.h"
#include "store/http/plain.h"

namespace headrace {

namespace {

struct Free {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(BIO* bio) const { BIO_free(bio); }
};

// What only fails for want of memory or where OpenSSL was set up without the algorithm.
void check(bool good, const char* what) {
  if (!good) throw Error(ErrorCode::unsupported, std::string("OpenSSL can not compute ") + what);
}

std::string digest(const EVP_MD* kind, std::span<const ConstBytes> parts, const char* what) {
  const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
  check(context != nullptr && EVP_DigestInit_ex(context.get(), kind, nullptr) == 1, what);
  for (const ConstBytes part : parts) {
    check(EVP_DigestUpdate(context.get(), part.data(), part.size()) == 1, what);
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned nbytes = 0;
  check(EVP_DigestFinal_ex(context.get(), bytes.data(), &nbytes) == 1, what);
  return {reinterpret_cast<const char*>(bytes.data()), nbytes};
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte that %XX at `at` stands for; -1 where there is none.
int encoded_at(std::string_view text, std::size_t at) {
  if (text[at] != '%' || text.size() - at < 3) return -1;
  const int high = hex_digit(text[at + 1]);
  const int low = hex_digit(text[at + 2]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace

std::string hex(std::string_view bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return out;
}

std::string base64url(std::string_view bytes) {
  std::string out = base64(bytes);
  while (out.ends_with('=')) out.pop_back();
  std::replace(out.begin(), out.end(), '+', '-');
  std::replace(out.begin(), out.end(), '/', '_');
  return out;
}

std::string sha256(std::span<const ConstBytes> parts) {
  return digest(EVP_sha256(), parts, "SHA-256");
}

std::string sha256(std::string_view text) {
  const ConstBytes part = bytes_of(text);
  return sha256({&part, 1});
}

std::string md5(std::span<const ConstBytes> parts) { return digest(EVP_md5(), parts, "MD5"); }

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned nbytes = 0;
  check(HMAC(EVP_sha256(),
             key.data(),
             static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(text.data()),
             text.size(),
             bytes.data(),
             &nbytes) != nullptr,
        "HMAC-SHA256");
  return {reinterpret_cast<const char*>(bytes.data()), nbytes};
}

std::string crc32c_bytes(std::span<const ConstBytes> parts) {
  std::uint32_t crc = 0;
  for (const ConstBytes part : parts) crc = crc32c_after(crc, part);
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(crc >> shift & 0xff);
  return out;
}

std::string rsa_sha256(const std::string& private_key_pem, std::string_view text) {
  const std::unique_ptr<BIO, Free> pem(
      BIO_new_mem_buf(private_key_pem.data(), static_cast<int>(private_key_pem.size())));
  check(pem != nullptr, "RS256");
  const std::unique_ptr<EVP_PKEY, Free> key(
      PEM_read_bio_PrivateKey(pem.get(), nullptr, nullptr, nullptr));
  if (key == nullptr || EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_RSA) {
    throw Error(ErrorCode::invalid_argument, "private_key is not an RSA key in PEM");
  }
  const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
  const auto* data = reinterpret_cast<const unsigned char*>(text.data());
  std::size_t nbytes = 0;
  check(context != nullptr &&
            EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key.get()) == 1 &&
            EVP_DigestSign(context.get(), nullptr, &nbytes, data, text.size()) == 1,
        "RS256");
  std::string out(nbytes, '\0');
  check(EVP_DigestSign(context.get(),
                       reinterpret_cast<unsigned char*>(out.data()),
                       &nbytes,
                       data,
                       text.size()) == 1,
        "RS256");
  out.resize(nbytes);
  return out;
}

std::string uri_encode(std::string_view text, Slash slash) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (is_unreserved(c) || (c == '/' && slash == Slash::kept)) {
      out += c;
    } else {
      append_encoded(out, c);
    }
  }
  return out;
}

std::string uri_encode_rest(std::string_view text, Slash slash) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (const int byte = encoded_at(text, i); byte >= 0) {
      append_encoded(out, static_cast<char>(byte));
      i += 2;
    } else if (is_unreserved(text[i]) || (text[i] == '/' && slash == Slash::kept)) {
      out += text[i];
    } else {
      append_encoded(out, text[i]);
    }
  }
  return out;
}

std::string uri_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const int byte = encoded_at(text, i);
    out += byte < 0 ? text[i] : static_cast<char>(byte);
    if (byte >= 0) i += 2;
  }
  return out;
}

}  // namespace headrace
