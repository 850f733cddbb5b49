#include "store/cloud/s3_xml.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include "headrace/error.h"
#include "store/cloud/digest.h"
#include "store/cloud/environment.h"
#include "store/cloud/xml.h"

namespace headrace {

namespace {

std::uint64_t parse_size(const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw Error(ErrorCode::corrupt, "a list has an object of size \"" + text + "\"");
  }
  return value;
}

// "url" of encoding-type is that of forms: a space is "+".
std::string form_decode(std::string text) {
  std::replace(text.begin(), text.end(), '+', ' ');
  return uri_decode(text);
}

}  // namespace

ListPage parse_object_list(ConstBytes body, const KeyRoot& root, std::string_view version_element) {
  ListPage page;
  ListedObject listed;
  std::vector<std::string> prefixes;
  std::vector<ListedObject> objects;
  bool url_encoded = false;
  bool truncated = false;
  bool seen = false;
  XmlReader xml(text_of(body));
  while (xml.next()) {
    const std::string_view name = xml.name();
    if (xml.depth() == 1) {
      if (name != "ListBucketResult") {
        throw Error(ErrorCode::corrupt, "a list was asked for, <" + std::string(name) + "> came");
      }
      seen = true;
    } else if (xml.depth() == 2) {
      if (name == "EncodingType") url_encoded = xml.text() == "url";
      if (name == "IsTruncated") truncated = xml.text() == "true";
      if (name == "NextContinuationToken") page.next = xml.text();
      if (name == "Contents") objects.emplace_back();
    } else if (xml.depth() == 3) {
      if (name == "Prefix") prefixes.push_back(xml.text());
      if (objects.empty()) continue;
      if (name == "Key") objects.back().key = xml.text();
      if (name == "Size") objects.back().nbytes = parse_size(xml.text());
      if (name == "LastModified") objects.back().written = within_second(read_time(xml.text()));
      if (name == version_element) objects.back().version = xml.text();
    }
  }
  if (!seen) throw Error(ErrorCode::corrupt, "a list was asked for, an empty answer came");
  if (truncated && page.next.empty()) {
    throw Error(ErrorCode::corrupt, "a list is cut short and does not say where it goes on");
  }
  if (!truncated) page.next.clear();
  for (ListedObject& object : objects) {
    if (url_encoded) object.key = form_decode(std::move(object.key));
    root.add_object(page, std::move(object));
  }
  for (std::string& prefix : prefixes) {
    root.add_prefix(page, url_encoded ? form_decode(std::move(prefix)) : prefix);
  }
  return page;
}

std::string parse_upload_id(ConstBytes body) {
  XmlReader xml(text_of(body));
  while (xml.next()) {
    if (xml.name() == "UploadId") {
      if (std::string id = xml.text(); !id.empty()) return id;
    }
  }
  throw Error(ErrorCode::corrupt, "an upload in parts was begun, an answer without its id came");
}

bool is_upload_result(ConstBytes body) {
  try {
    XmlReader xml(text_of(body));
    return xml.next() && xml.name() == "CompleteMultipartUploadResult";
  } catch (const Error&) {
    return false;
  }
}

std::string xml_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      // A bare line break would come out as another character.
      out += "&#" + std::to_string(static_cast<int>(c)) + ";";
    } else {
      out += c;
    }
  }
  return out;
}

std::string upload_parts_xml(std::span<const std::string> parts) {
  std::string out = "<CompleteMultipartUpload>";
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    const std::size_t space = std::min(part.find(' '), part.size());
    out += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" +
           xml_escape(part.substr(0, space)) + "</ETag>";
    if (space < part.size()) {
      out += "<ChecksumCRC32C>" + xml_escape(part.substr(space + 1)) + "</ChecksumCRC32C>";
    }
    out += "</Part>";
  }
  return out + "</CompleteMultipartUpload>";
}

std::string erased_objects_xml(const KeyRoot& root, std::span<const std::string> keys) {
  std::string out = "<Delete><Quiet>true</Quiet>";
  for (const std::string& key : keys) {
    out += "<Object><Key>" + xml_escape(root.object(key)) + "</Key></Object>";
  }
  return out + "</Delete>";
}

namespace {

void take_field(XmlReader& xml, ServerError& error) {
  const std::string_view name = xml.name();
  if (name == "Code") error.code = xml.text();
  if (name == "Message") error.message = xml.text();
  if (name == "Key" && error.key.empty()) error.key = xml.text();
  if (name == "Region") error.region = xml.text();
  if (name == "ServerTime") error.server_time = xml.text();
}

}  // namespace

ServerError parse_server_error(ConstBytes body) {
  ServerError error;
  try {
    XmlReader xml(text_of(body));
    bool within = false;
    while (xml.next()) {
      const std::string_view name = xml.name();
      if (name == "Error") {
        if (xml.depth() == 1) error.is_document = true;
        within = true;
      }
      if (within) take_field(xml, error);
    }
  } catch (const Error&) {
    // A proxy's page; the status says what there is to say.
  }
  return error;
}

std::optional<ServerError> parse_erase_error(ConstBytes body) {
  std::vector<ServerError> errors;
  bool seen = false;
  if (text_of(body).find_first_not_of(" \t\r\n") == std::string_view::npos) return std::nullopt;
  XmlReader xml(text_of(body));
  while (xml.next()) {
    const std::string_view name = xml.name();
    if (name == "Error") {
      errors.emplace_back();
    } else if (xml.depth() == 1 && !name.ends_with("Result")) {
      throw Error(ErrorCode::corrupt,
                  "objects were to be erased, <" + std::string(name) + "> came");
    } else if (!errors.empty()) {
      take_field(xml, errors.back());
    }
    seen = true;
  }
  if (!seen) throw Error(ErrorCode::corrupt, "objects were to be erased, something else came");
  for (ServerError& error : errors) {
    if (error.code != "NoSuchKey") return std::move(error);
  }
  return std::nullopt;
}

std::string described(const ServerError& error, int status) {
  std::string text = std::to_string(status);
  if (!error.code.empty()) text += " " + error.code;
  // Azure's go on with an id and a time behind a line break.
  std::string message = error.message.substr(0, error.message.find('\n'));
  constexpr std::size_t kLongest = 300;
  if (message.size() > kLongest) message = message.substr(0, kLongest) + "...";
  if (!message.empty()) text += " (" + message + ")";
  return text;
}

}  // namespace headrace
