#pragma once

// Digests and encodings that requests to object stores are made of.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "store/http/checksums.h"

namespace headrace {

// Bytes as text: digests are text of 32 or 16 bytes that may hold any byte.
std::string hex(std::string_view bytes);
inline std::string base64(std::string_view bytes) { return base64(bytes_of(bytes)); }
std::string base64url(std::string_view bytes);  // of RFC 4648 section 5, without padding

std::string sha256(std::span<const ConstBytes> parts);
std::string sha256(std::string_view text);
std::string md5(std::span<const ConstBytes> parts);
std::string hmac_sha256(std::string_view key, std::string_view text);
// Castagnoli's, of the parts one after the other, most significant byte first.
std::string crc32c_bytes(std::span<const ConstBytes> parts);
// PKCS #1 v1.5 with SHA-256, as RS256 of JSON web tokens. invalid_argument for a key that is no PEM
// of an RSA key.
std::string rsa_sha256(const std::string& private_key_pem, std::string_view text);

// All but letters, digits and -._~ as %XX, and "/" as it is where it is kept.
enum class Slash : std::uint8_t { kept, encoded };
std::string uri_encode(std::string_view text, Slash slash);
// The same of text of which parts are encoded already; these stay.
std::string uri_encode_rest(std::string_view text, Slash slash);
// The opposite; what is no %XX stays, and "+" does.
std::string uri_decode(std::string_view text);

}  // namespace headrace
