#pragma once

// The body of an answer of success as it comes, by more than one attempt where one is cut short.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/bytes.h"
#include "store/http/client.h"

namespace headrace {

const std::string* find_header(const std::vector<HttpHeader>& headers, std::string_view name);
void set_header(std::vector<HttpHeader>& headers, std::string_view name, std::string value);

class ResponseBody {
 public:
  // Of the request, which outlives this, it has the place of the body and its bounds.
  explicit ResponseBody(const HttpRequest& request) : request_(request) {}

  // Whether some of it came, and the rest of that very object can be asked for.
  bool can_resume() const;
  // Asks for the rest in place of what the headers ask for.
  void ask_for_rest(std::vector<HttpHeader>& headers) const;

  // An answer of success began; `length` is what it says of its body. False: it was asked for the
  // rest and has something else, so that all is to be asked for anew. Throws `corrupt` for a length
  // that is not wanted, `unsupported` where all of a large object comes in place of a range.
  bool begin(int status,
             const std::vector<HttpHeader>& headers,
             std::optional<std::uint64_t> length,
             bool asked_for_rest);
  // False: what is wanted is there, and the rest need not come. Throws `corrupt` for too much.
  bool take(ConstBytes bytes);
  // As far as that is known: a body of unknown length ends where it ends.
  bool is_complete() const;
  void restart();

  bool sized() const { return sized_; }
  std::uint64_t nbytes() const { return received_; }

  // The answer that the body began with, of which an answer with the rest says nothing: what came
  // in all is what that one promised.
  struct Beginning {
    int status = 0;
    std::vector<HttpHeader> headers{};
  };
  // Of an attempt that is over and began the body; kept where another one may go on.
  void keep_beginning(int status, std::vector<HttpHeader>& headers);
  // Null where the last answer is the one.
  Beginning* beginning() { return beginning_ ? &*beginning_ : nullptr; }
  // What came, unless it went to the request's place.
  Buffer release();

 private:
  void begin_anew(int status,
                  const std::vector<HttpHeader>& headers,
                  std::optional<std::uint64_t> length);

  const HttpRequest& request_;
  Buffer bytes_;
  std::uint64_t received_ = 0;
  std::uint64_t skip_ = 0;    // of the whole object, before what is wanted
  std::uint64_t passed_ = 0;  // bytes of no use
  bool cuts_ = false;         // the answer is the whole object
  bool sized_ = false;
  std::optional<std::uint64_t> expected_;  // bytes of all of it
  // Of the object: which of its bytes the body is, and a strong validator. Empty: cannot be
  // resumed.
  std::uint64_t first_ = 0;
  std::string etag_;
  std::optional<Beginning> beginning_;
};

}  // namespace headrace
