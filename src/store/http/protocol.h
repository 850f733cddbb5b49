#pragma once

// What objects of one place are to a server: how reads, writes and lists are said, and what its
// answers mean. store/http/driver.h makes a store of a protocol and a client; the protocols are
// plain HTTP, S3, GCS and Azure.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/error.h"
#include "headrace/store.h"
#include "store/async.h"
#include "store/http/client.h"

namespace headrace {

struct ListedObject {
  std::string key;  // below the root of the store
  std::uint64_t nbytes = 0;
  std::string version{};
  std::optional<WrittenAt> written{};
};

// What a clock of seconds tells.
std::optional<WrittenAt> within_second(std::optional<std::chrono::system_clock::time_point> time);

struct ListPage {
  std::vector<ListedObject> objects;
  std::vector<std::string> prefixes;  // "a/b/", where a delimiter was asked for
  std::string next{};                 // for the next page; empty: this is the last
};

// What a protocol is able to do.
struct ProtocolAbilities {
  bool suffix_ranges = true;
  bool lists = true;
  bool writes = true;
  bool conditional_writes = true;
  // Whether an upload in parts may have a condition; else an object with one goes whole.
  bool conditional_uploads = true;
  std::uint64_t max_put_nbytes = std::uint64_t{64} << 20;  // larger objects are written in parts
  std::uint64_t part_nbytes = std::uint64_t{16} << 20;     // at least; more for huge objects
  std::size_t max_erased_at_once = 1;
};

// Immutable but for credentials, which it renews. Any thread calls any method.
class ObjectProtocol {
 public:
  virtual ~ObjectProtocol() = default;

  virtual std::string url() const = 0;  // "s3://bucket/prefix", without secrets
  // Equal for places that are one: endpoint, bucket, prefix, without a slash at the end.
  virtual std::string identity() const = 0;
  virtual ProtocolAbilities abilities() const = 0;

  // Called where a request is made, never by a client's thread: may wait, to renew credentials.
  virtual void prepare() {}

  // The number of the credentials that requests are signed by now; it rises where they are renewed.
  virtual std::uint64_t credentials() const { return 0; }
  // Whether the answer to a request says that its credentials, those of this number, hold no more,
  // so that prepare() is to get others.
  virtual bool have_ended(const HttpResponse&, std::uint64_t) { return false; }

  // Requests are complete but for what `sign` adds.
  virtual HttpRequest read(std::string_view key,
                           const Extent& extent,
                           const std::string& if_version) = 0;
  virtual HttpRequest look_up(std::string_view key) = 0;  // HEAD
  virtual HttpRequest put(std::string_view key,
                          std::span<const ConstBytes> parts,
                          const WriteCondition& condition) = 0;
  // Of max_erased_at_once keys at most. A missing one is no error.
  virtual HttpRequest erase(std::span<const std::string> keys) = 0;
  // On condition that it is of this version, of a server that takes notice.
  virtual HttpRequest erase_if(std::string_view key, const std::string& version) = 0;
  // A header by which an object keeps what a write of it was called, and answers to look_up() tell
  // it: so one whose answer was lost is known again. Null: there is none.
  virtual const char* write_name_header() const { return nullptr; }
  // `prefix` is "" or ends with a slash; `from` is what the page before called `next`, "" at first.
  virtual HttpRequest list(std::string_view prefix, bool delimiter, const std::string& from) = 0;

  // An object in parts, numbered from 1 on. `upload` is what the server called it. A request whose
  // method is empty is none: uploads of this server begin, or end, by themselves, and upload_of()
  // is asked with an empty answer.
  virtual HttpRequest begin_upload(std::string_view key) = 0;
  virtual std::string upload_of(const HttpResponse& response) = 0;
  virtual HttpRequest put_part(std::string_view key,
                               const std::string& upload,
                               int number,
                               std::span<const ConstBytes> part) = 0;
  virtual std::string part_of(const HttpResponse& response) = 0;  // what finish_upload() calls it
  virtual HttpRequest finish_upload(std::string_view key,
                                    const std::string& upload,
                                    std::span<const std::string> parts,
                                    const WriteCondition& condition) = 0;
  // Whether an answer of success to finish_upload() says that the object is there; else it is
  // looked for, as where the answer is lost.
  virtual bool says_finished(const HttpResponse&) const { return true; }
  virtual HttpRequest abort_upload(std::string_view key, const std::string& upload) = 0;

  // What answers mean.
  virtual std::string version_of(const HttpResponse& response) const = 0;  // empty: it cannot tell
  // Whether an answer of success is of an object of this version, which is not empty.
  virtual bool is_of_version(const HttpResponse& response, const std::string& version) const {
    return version_of(response) == version;
  }
  virtual ListPage page_of(const HttpResponse& response) const = 0;
  // Throws unless all was erased; servers answer 200 for a part.
  virtual void check_erased(const HttpResponse& response) const = 0;
  // Whether an answer of success to erase() of several keys says what became of them. Else each is
  // erased by itself.
  virtual bool says_erased(const HttpResponse&) const { return true; }
  // Of one that is neither a success nor a missing object: permission_denied with what to do about
  // it, conflict for a write whose condition does not hold, io. Without secrets.
  virtual Error error_of(const HttpRequest& request, const HttpResponse& response) const = 0;
  // An answer of success may be an error in words (S3's CompleteMultipartUpload), or have other
  // bytes than those that are stored.
  virtual void check_answer(const HttpResponse&) const {}
  // Whether a 404 speaks of the object, and not of all that lies around it, nor for somebody else,
  // as a proxy's page does: an array of a bucket that is gone is not one of missing chunks.
  virtual bool is_missing_object(const HttpRequest& /*asked*/, const HttpResponse&) const {
    return true;
  }
};

}  // namespace headrace
