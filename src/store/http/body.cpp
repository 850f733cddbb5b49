#include "store/http/body.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "headrace/error.h"
#include "store/http/content_range.h"

namespace headrace {

namespace {

// Of an object that comes whole in place of a range: as much as may pass for nothing.
constexpr std::uint64_t kMaxPassed = std::uint64_t{64} << 20;
// What a length that a server says is trusted with before the bytes come. Fresh pages take no
// memory until they are written to.
constexpr std::uint64_t kMaxReserved = std::uint64_t{256} << 20;

[[noreturn]] void throw_too_long(std::uint64_t nbytes, std::uint64_t wanted) {
  throw Error(ErrorCode::corrupt,
              "the answer has " + std::to_string(nbytes) + " bytes, wanted at most " +
                  std::to_string(wanted),
              EFBIG);
}

[[noreturn]] void throw_ignores_ranges(std::uint64_t nbytes) {
  throw Error(ErrorCode::unsupported,
              "the server ignores ranges and sends the whole object, of " + std::to_string(nbytes) +
                  " bytes or more");
}

// Whether a part of so many bytes is the last one of its object, after which more was asked for.
bool ends_object(const std::vector<HttpHeader>& headers, std::uint64_t nbytes) {
  const std::string* text = find_header(headers, "Content-Range");
  const auto range = text == nullptr ? std::nullopt : parse_content_range(*text);
  return range && range->satisfied && range->object_nbytes &&
         range->last + 1 == *range->object_nbytes && range->last - range->first + 1 == nbytes;
}

}  // namespace

const std::string* find_header(const std::vector<HttpHeader>& headers, std::string_view name) {
  for (const HttpHeader& header : headers) {
    if (same_name(header.name, name)) return &header.value;
  }
  return nullptr;
}

void set_header(std::vector<HttpHeader>& headers, std::string_view name, std::string value) {
  for (HttpHeader& header : headers) {
    if (!same_name(header.name, name)) continue;
    header.value = std::move(value);
    return;
  }
  headers.push_back({std::string(name), std::move(value)});
}

bool ResponseBody::can_resume() const {
  return received_ > 0 && !etag_.empty() && expected_ && received_ < *expected_;
}

void ResponseBody::ask_for_rest(std::vector<HttpHeader>& headers) const {
  set_header(headers,
             "Range",
             "bytes=" + std::to_string(first_ + received_) + "-" +
                 std::to_string(first_ + *expected_ - 1));
  // A condition of the request's own holds for the rest as well.
  if (find_header(headers, "If-Match") == nullptr) headers.push_back({"If-Match", etag_});
}

bool ResponseBody::begin(int status,
                         const std::vector<HttpHeader>& headers,
                         std::optional<std::uint64_t> length,
                         bool asked_for_rest) {
  if (!asked_for_rest || status != 206) {
    begin_anew(status, headers, length);
    return true;
  }
  const std::string* text = find_header(headers, "Content-Range");
  const auto range = text ? parse_content_range(*text) : std::nullopt;
  const std::string* etag = find_header(headers, "ETag");
  if (range && range->satisfied && range->first == first_ + received_ &&
      range->last == first_ + *expected_ - 1 && etag != nullptr && *etag == etag_ &&
      (!length || *length == *expected_ - received_)) {
    return true;
  }
  restart();
  return false;
}

void ResponseBody::begin_anew(int status,
                              const std::vector<HttpHeader>& headers,
                              std::optional<std::uint64_t> length) {
  restart();
  sized_ = length.has_value();
  const MutableBytes into = request_.into;
  if (status == 200 && request_.whole_offset && !into.empty()) {
    cuts_ = true;
    skip_ = *request_.whole_offset;
    expected_ = into.size();
    if (length && (*length < skip_ || *length - skip_ < into.size())) {
      throw Error(ErrorCode::corrupt,
                  "wanted " + std::to_string(into.size()) + " bytes at offset " +
                      std::to_string(skip_) + ", the object has " + std::to_string(*length));
    }
    if (skip_ > kMaxPassed) throw_ignores_ranges(length.value_or(skip_));
    return;
  }
  expected_ = length;
  if (!into.empty()) {
    if (length && *length < into.size() && status == 206 && ends_object(headers, *length)) {
      expected_ = length;  // fewer bytes than were asked for: who asked sees by their number
    } else if (length && *length != into.size()) {
      throw Error(ErrorCode::corrupt,
                  "the answer has " + std::to_string(*length) + " bytes, wanted " +
                      std::to_string(into.size()));
    } else {
      expected_ = into.size();
    }
  } else if (length) {
    if (*length > request_.max_nbytes) throw_too_long(*length, request_.max_nbytes);
    bytes_.resize(checked_cast<std::size_t>(std::min(*length, kMaxReserved), "length of a body"));
  }

  const std::string* etag = find_header(headers, "ETag");
  if (etag == nullptr || !etag->starts_with('"')) return;  // W/"..." is no promise about bytes
  first_ = 0;
  if (status == 206) {
    const std::string* text = find_header(headers, "Content-Range");
    const auto range = text ? parse_content_range(*text) : std::nullopt;
    if (!range || !range->satisfied) return;
    if (expected_ && range->last - range->first + 1 != *expected_) return;
    first_ = range->first;
    expected_ = range->last - range->first + 1;
  } else if (status != 200 || !length) {
    return;
  }
  etag_ = *etag;
}

bool ResponseBody::take(ConstBytes bytes) {
  if (skip_ > 0) {
    const std::size_t skipped = std::min<std::uint64_t>(skip_, bytes.size());
    bytes = bytes.subspan(skipped);
    skip_ -= skipped;
  }
  if (request_.into.empty()) {
    if (bytes.size() > request_.max_nbytes - received_) {
      throw_too_long(received_ + bytes.size(), request_.max_nbytes);
    }
    const std::size_t end = static_cast<std::size_t>(received_) + bytes.size();
    if (bytes_.size() < end) {
      bytes_.resize_keep(std::min<std::uint64_t>(
          std::max(end, 2 * bytes_.size()), std::max<std::uint64_t>(end, request_.max_nbytes)));
    }
    if (!bytes.empty()) std::memcpy(bytes_.data() + received_, bytes.data(), bytes.size());
    received_ = end;
    return true;
  }
  const std::size_t room = request_.into.size() - static_cast<std::size_t>(received_);
  if (bytes.size() > room) {
    if (!cuts_) throw_too_long(received_ + bytes.size(), request_.into.size());
    passed_ += bytes.size() - room;
    bytes = bytes.first(room);
  }
  if (!bytes.empty()) {
    std::memcpy(request_.into.data() + received_, bytes.data(), bytes.size());
    received_ += bytes.size();
  }
  // To read on to the end costs less than another connection, as long as the end is near.
  constexpr std::uint64_t kNear = std::uint64_t{1} << 20;
  return !cuts_ || passed_ < kNear;
}

bool ResponseBody::is_complete() const { return !expected_ || received_ == *expected_; }

void ResponseBody::restart() {
  received_ = skip_ = passed_ = first_ = 0;
  cuts_ = sized_ = false;
  expected_.reset();
  etag_.clear();
  beginning_.reset();
}

void ResponseBody::keep_beginning(int status, std::vector<HttpHeader>& headers) {
  if (can_resume()) beginning_ = {status, std::move(headers)};
}

Buffer ResponseBody::release() {
  bytes_.resize_keep(request_.into.empty() ? static_cast<std::size_t>(received_) : 0);
  return std::move(bytes_);
}

}  // namespace headrace
