#pragma once

// What S3 and Google Cloud Storage say in XML: lists, uploads in parts, errors.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "store/cloud/request.h"
#include "store/http/protocol.h"

namespace headrace {

// The version of a listed object: that element.
ListPage parse_object_list(ConstBytes body, const KeyRoot& root, std::string_view version_element);

// Whether it says that an upload in parts is an object.
bool is_upload_result(ConstBytes body);
std::string parse_upload_id(ConstBytes body);

// The body that ends an upload. A part is its ETag, or that and its CRC-32C behind a space.
std::string upload_parts_xml(std::span<const std::string> parts);
// The body that erases several objects.
std::string erased_objects_xml(const KeyRoot& root, std::span<const std::string> keys);

// An error as servers say it; all empty where the body has none.
struct ServerError {
  std::string code{};
  std::string message{};
  std::string key{};
  std::string region{};
  std::string server_time{};
  bool is_document = false;  // it is all that came, and not part of a longer answer
};
ServerError parse_server_error(ConstBytes body);
// Of what was to be erased and was not, the first; nothing: all was, or was missing before.
// `corrupt` where somebody else answered, as a page for people does.
std::optional<ServerError> parse_erase_error(ConstBytes body);
// Its code and message, short enough for one of ours; or the status.
std::string described(const ServerError& error, int status);

// The advice where a 404 is not the store's own.
inline constexpr char kAnsweredByAnother[] =
    "the store did not say so, but something at its address or in between, as a proxy does whose "
    "server is down";

std::string xml_escape(std::string_view text);

}  // namespace headrace
