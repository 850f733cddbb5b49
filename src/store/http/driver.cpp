#include "store/http/driver.h"

#include <curl/curl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/fork_mutex.h"
#include "base/mutex.h"
#include "headrace/error.h"
#include "store/http/checksums.h"
#include "store/http/content_range.h"
#include "store/http/renewing_client.h"
#include "store/http/write.h"
#include "store/key_list.h"
#include "store/left_out.h"

namespace headrace {

namespace {

// Of an object that comes whole in place of its end: as much as is held for nothing.
constexpr std::uint64_t kMaxWholeNbytes = std::uint64_t{64} << 20;
// A range without a place of its own is read into one before its server has said that there is one,
// so that it can be cut out of a whole object; a longer one waits for the answer.
constexpr std::uint64_t kMaxPlacedNbytes = std::uint64_t{256} << 20;
// What offsets can count to, here and in Python.
constexpr std::uint64_t kMaxObjectNbytes = INT64_MAX;
// On pages one after another of a list, of which an empty one counts as one: servers may pass over
// removed objects a page at a time, and name a prefix on each page that it goes on to.
constexpr std::size_t kMaxNamesOfNothingNew = 100'000;

std::exception_ptr changed(std::string_view object) {
  try {
    throw_changed(object);
  } catch (...) {
    return std::current_exception();
  }
}

// Of references an ETag may be known, whatever else is a version to the protocol: of Google's
// objects the generation, of those whose ETag is a weak one their time.
bool has_etag(const HttpResponse& response, std::string_view etag) {
  const std::string* const found = response.header("ETag");
  return found != nullptr && *found == etag;
}

class Driver;

// A read under way, which may take more than one request.
struct ReadJob {
  ReadJob(std::shared_ptr<Driver> its_driver, AsyncRead& its_read)
      : driver(std::move(its_driver)),
        read(its_read),
        extent(its_read.extent),
        if_version(its_read.if_version) {}

  const std::shared_ptr<Driver> driver;
  AsyncRead& read;
  std::uint64_t ticket = 0;
  Extent extent;           // as it is asked for: never a suffix where the protocol has none
  std::string if_version;  // likewise
  HttpRequest asked;       // for messages
  bool is_second = false;  // after bytes that did not match their checksum
};
using Job = std::shared_ptr<ReadJob>;

class Driver final : public HttpDriver {
 public:
  Driver(std::shared_ptr<ObjectProtocol> protocol,
         std::shared_ptr<HttpClient> client,
         HttpAccess access)
      : protocol_(std::move(protocol)),
        client_(make_renewing_client(protocol_, std::move(client))),
        abilities_(protocol_->abilities()),
        access_(access) {}

  std::string url() const override { return protocol_->url(); }
  bool read_only() const override { return access_ == HttpAccess::read_only || !abilities_.writes; }
  std::string identity(std::string_view prefix) override {
    std::string place = protocol_->identity();
    if (!prefix.empty()) place.append("/").append(prefix);
    return place;
  }
  // The URL has neither the endpoint of a bucket nor the query.
  std::string lasting_name() override { return protocol_->identity(); }
  std::size_t depth() const override {
    return static_cast<std::size_t>(client_->options().max_in_flight);
  }

  void submit(std::span<AsyncRead* const> reads) noexcept override;
  void cancel(AsyncRead& read) noexcept override;

  AsyncWrites* async_writes() override { return this; }
  void submit(std::span<AsyncWrite* const> writes) noexcept override;
  void cancel(AsyncWrite& write) noexcept override;
  WriteConditions write_conditions() const override {
    const bool some = !read_only() && abilities_.conditional_writes;
    return {some, some};
  }

  void set(std::string_view key, ConstBytes bytes) override { set_if(key, {&bytes, 1}, {}); }
  void set_parts(std::string_view key, std::span<const ConstBytes> parts) override {
    set_if(key, parts, {});
  }
  std::string set_if(std::string_view key,
                     std::span<const ConstBytes> parts,
                     const WriteCondition& condition) override {
    check_key(key);
    WaitedWrite write;
    write.key = key;
    write.parts.assign(parts.begin(), parts.end());
    write.condition = condition;
    write_and_wait(*this, write);
    return std::move(write.version);
  }
  void erase(std::string_view key) override {
    check_writable();
    check_key(key);
    const std::string name(key);
    erase_objects(*protocol_, *client_, {&name, 1});
  }
  void erase_prefix(std::string_view prefix) override {
    check_writable();
    prefix = check_prefix(prefix);
    for_each_page(prefix, false, [&](const ListPage& page) {
      std::vector<std::string> keys;
      for (const ListedObject& object : page.objects) {
        if (lies_below(object.key, prefix)) keys.push_back(object.key);
      }
      erase_objects(*protocol_, *client_, keys);
    });
  }

  std::vector<std::string> list(std::string_view prefix) override;
  std::vector<ObjectSize> list_sizes(std::string_view prefix) override;
  std::vector<DirEntry> list_dir(std::string_view prefix) override;

 protected:
  std::optional<ObjectState> look_up(std::string_view key) override;

 private:
  // What is to come of a read: its ticket leads to the request that is under way for it.
  struct Flight {
    std::uint64_t number = 0;
    bool cancelled = false;
  };

  void check_writable() const {
    if (read_only()) throw_read_only(url());
  }
  std::string name_of(std::string_view key) const { return url() + "/" + std::string(key); }
  void check_unchanged(const AsyncRead& read, const HttpResponse& response) const;

  void start(const Job& job);
  void ask(const Job& job);
  void look_up_first(const Job& job);
  void send(const Job& job, HttpRequest request, void (Driver::*then)(const Job&, HttpResponse));
  void looked_up(const Job& job, HttpResponse response);
  void answered(const Job& job, HttpResponse response);
  void take_answer(const Job& job, HttpResponse& response);
  void take_whole(const Job& job, HttpResponse& response);
  void take_range(const Job& job, HttpResponse& response);
  void take_suffix(const Job& job, HttpResponse& response);
  void take_unsatisfied(const Job& job, const HttpResponse& response);
  void end(const Job& job, std::exception_ptr error);
  std::optional<ObjectState> state_of(std::string_view key,
                                      const HttpRequest& request,
                                      const HttpResponse& response) const;

  template <typename Body>
  void for_each_page(std::string_view prefix, bool delimiter, Body body);

  const std::shared_ptr<ObjectProtocol> protocol_;
  const std::shared_ptr<HttpClient> client_;
  const ProtocolAbilities abilities_;
  const HttpAccess access_;
  std::atomic<std::uint64_t> next_ticket_{1};
  ForkMutex mutex_;
  std::unordered_map<std::uint64_t, Flight> flights_ GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, std::shared_ptr<ObjectWrite>> writes_ GUARDED_BY(mutex_);
};

void Driver::submit(std::span<AsyncRead* const> reads) noexcept {
  std::exception_ptr error;
  try {
    protocol_->prepare();
  } catch (...) {
    error = std::current_exception();
  }
  for (AsyncRead* const read : reads) {
    Job job;
    try {
      if (error) std::rethrow_exception(error);
      job = std::make_shared<ReadJob>(std::static_pointer_cast<Driver>(shared_from_this()), *read);
      job->ticket = read->ticket = next_ticket_.fetch_add(1);
      {
        const ForkLock lock(mutex_);
        flights_.emplace(job->ticket, Flight{});
      }
      start(job);
    } catch (...) {
      if (job) {
        end(job, std::current_exception());
      } else {
        read->error = std::current_exception();
        read->done();
      }
    }
  }
}

void Driver::cancel(AsyncRead& read) noexcept {
  std::uint64_t number = 0;
  {
    const ForkLock lock(mutex_);
    const auto at = flights_.find(read.ticket);
    if (at == flights_.end()) return;
    at->second.cancelled = true;
    number = at->second.number;
  }
  if (number != 0) client_->cancel(number);
}

void Driver::submit(std::span<AsyncWrite* const> writes) noexcept {
  std::exception_ptr error;
  try {
    check_writable();
    protocol_->prepare();
  } catch (...) {
    error = std::current_exception();
  }
  for (AsyncWrite* const write : writes) {
    // The write may be over, and gone, before start() returns.
    const std::uint64_t ticket = write->ticket = next_ticket_.fetch_add(1);
    const auto forget = [driver = std::static_pointer_cast<Driver>(shared_from_this()), ticket] {
      const ForkLock lock(driver->mutex_);
      driver->writes_.erase(ticket);
    };
    try {
      if (error) std::rethrow_exception(error);
      if (write->condition.kind != WriteCondition::Kind::none && !abilities_.conditional_writes) {
        throw_no_condition(url(), write->condition);
      }
      const auto job = std::make_shared<ObjectWrite>(protocol_, client_, *write, forget);
      {
        const ForkLock lock(mutex_);
        writes_.emplace(ticket, job);
      }
      job->start();
    } catch (...) {
      forget();
      write->error = std::current_exception();
      write->done();
    }
  }
}

void Driver::cancel(AsyncWrite& write) noexcept {
  std::shared_ptr<ObjectWrite> job;
  {
    const ForkLock lock(mutex_);
    const auto at = writes_.find(write.ticket);
    if (at == writes_.end()) return;
    job = at->second;
  }
  job->cancel();
}

void Driver::start(const Job& job) {
  const Extent& extent = job->extent;
  const bool is_empty = extent.kind != Extent::Kind::whole && extent.nbytes == 0;
  if (is_empty || (extent.kind == Extent::Kind::suffix && !abilities_.suffix_ranges)) {
    look_up_first(job);
  } else {
    ask(job);
  }
}

void Driver::look_up_first(const Job& job) {
  send(job, protocol_->look_up(job->read.key), &Driver::looked_up);
}

void Driver::ask(const Job& job) {
  AsyncRead& read = job->read;
  HttpRequest request = protocol_->read(read.key, job->extent, job->if_version);
  switch (job->extent.kind) {
    case Extent::Kind::whole:
      request.max_nbytes = read.max_nbytes;
      break;
    case Extent::Kind::range:
      request.into = read.into;
      request.max_nbytes = job->extent.nbytes;
      if (request.into.empty() && job->extent.nbytes <= kMaxPlacedNbytes) {
        read.bytes.resize(static_cast<std::size_t>(job->extent.nbytes));
        request.into = read.bytes.bytes();
      } else if (request.into.empty()) {
        read.bytes.clear();
      }
      if (!request.into.empty()) request.whole_offset = job->extent.offset;
      break;
    case Extent::Kind::suffix:
      request.max_nbytes = std::max(job->extent.nbytes, kMaxWholeNbytes);
      break;
  }
  send(job, std::move(request), &Driver::answered);
}

void Driver::send(const Job& job,
                  HttpRequest request,
                  void (Driver::*then)(const Job&, HttpResponse)) {
  if (job->read.deadline != std::chrono::steady_clock::time_point::max()) {
    request.deadline = job->read.deadline;
  }
  job->asked = {};
  job->asked.method = request.method;
  job->asked.url = request.url;
  // The job may be over, and its read gone, before send() returns.
  const std::uint64_t ticket = job->ticket;
  const std::uint64_t number = client_->send(
      std::move(request),
      [job, then](HttpResponse response) { ((*job->driver).*then)(job, std::move(response)); });
  bool cancelled = false;
  {
    const ForkLock lock(mutex_);
    const auto at = flights_.find(ticket);
    if (at == flights_.end()) return;
    // A later request of the same job has a higher number.
    at->second.number = std::max(at->second.number, number);
    cancelled = at->second.cancelled;
  }
  if (cancelled) client_->cancel(number);
}

void Driver::end(const Job& job, std::exception_ptr error) {
  {
    const ForkLock lock(mutex_);
    flights_.erase(job->ticket);
  }
  job->read.error = std::move(error);
  job->read.done();
}

// The two that follow end a job outside of their handlers, where nothing is left of the exception
// but what the read is told.

void Driver::looked_up(const Job& job, HttpResponse response) {
  AsyncRead& read = job->read;
  std::exception_ptr error = std::move(response.error);
  if (error) return end(job, std::move(error));
  try {
    std::optional<ObjectState> state = state_of(read.key, job->asked, response);
    if (!state) return end(job, nullptr);
    if (!read.if_version.empty() && state->version != read.if_version &&
        !has_etag(response, read.if_version)) {
      throw_changed(read.key);
    }
    const std::uint64_t wanted = job->extent.nbytes;
    if (job->extent.kind == Extent::Kind::suffix) {
      const std::uint64_t nbytes = std::min(wanted, state->nbytes);
      job->extent = Extent::range(state->nbytes - nbytes, nbytes);
    }
    if (job->extent.nbytes == 0) {
      check_object_range(read.key, state->nbytes, job->extent.offset, 0);
      read.found = true;
      read.bytes.clear();
      read.version = std::move(state->version);
      read.object_nbytes = state->nbytes;
      return end(job, nullptr);
    }
    job->if_version = std::move(state->version);
    return ask(job);
  } catch (...) {
    error = std::current_exception();
  }
  end(job, std::move(error));
}

void Driver::answered(const Job& job, HttpResponse response) {
  std::exception_ptr error = std::move(response.error);
  if (error) return end(job, std::move(error));
  try {
    if (job->extent.kind == Extent::Kind::whole && response.status == 200) {
      if (const char* header = wrong_checksum(response, response.body.bytes())) {
        // On its way or in the store: once more tells.
        if (!std::exchange(job->is_second, true)) return ask(job);
        throw Error(ErrorCode::corrupt,
                    name_of(job->read.key) + ": its bytes do not match its " + header);
      }
    }
    take_answer(job, response);
  } catch (...) {
    error = std::current_exception();
  }
  end(job, std::move(error));
}

void Driver::check_unchanged(const AsyncRead& read, const HttpResponse& response) const {
  const std::string* const text = response.header("Last-Modified");
  if (read.if_unchanged_since == 0 || text == nullptr) return;
  if (curl_getdate(text->c_str(), nullptr) <= read.if_unchanged_since) return;
  throw Error(
      ErrorCode::io,
      name_of(read.key) + ": has changed since it was referred to (its server says " + *text + ")");
}

void Driver::take_answer(const Job& job, HttpResponse& response) {
  AsyncRead& read = job->read;
  read.found = false;
  read.nbytes_before_end = 0;
  if (response.status == 404 && protocol_->is_missing_object(job->asked, response)) return;
  if (response.status == 412) std::rethrow_exception(changed(name_of(read.key)));
  if (response.status == 416) return take_unsatisfied(job, response);
  if (response.status != 200 && response.status != 206) {
    throw protocol_->error_of(job->asked, response);
  }
  check_unchanged(read, response);
  protocol_->check_answer(response);
  read.version = protocol_->version_of(response);
  // Servers that know no conditions send what there is, and some of these no version either.
  if (!job->if_version.empty() && read.version != job->if_version &&
      !protocol_->is_of_version(response, job->if_version) &&
      !has_etag(response, job->if_version)) {
    std::rethrow_exception(changed(name_of(read.key)));
  }
  if (!response.sized) {
    throw Error(ErrorCode::unsupported,
                name_of(read.key) +
                    ": the server does not say how long its answer is, and one that is cut short "
                    "would not be noticed");
  }
  switch (job->extent.kind) {
    case Extent::Kind::whole:
      take_whole(job, response);
      break;
    case Extent::Kind::range:
      take_range(job, response);
      break;
    case Extent::Kind::suffix:
      take_suffix(job, response);
      break;
  }
  read.found = true;
}

void Driver::take_whole(const Job& job, HttpResponse& response) {
  AsyncRead& read = job->read;
  if (response.status != 200) {
    throw Error(ErrorCode::corrupt, name_of(read.key) + ": a part came where all was asked for");
  }
  check_object_nbytes(read.key, response.nbytes, read.max_nbytes);
  read.object_nbytes = response.nbytes;
  read.bytes = std::move(response.body);
}

// Of an answer to a range or a suffix with status 206.
ContentRange range_of(const HttpResponse& response, const std::string& name) {
  const std::string* text = response.header("Content-Range");
  const auto range = text == nullptr ? std::nullopt : parse_content_range(*text);
  if (range && range->satisfied) return *range;
  throw Error(ErrorCode::corrupt,
              name + (text == nullptr ? ": a part came without a Content-Range"
                                      : ": its Content-Range is none: " + *text));
}

void Driver::take_range(const Job& job, HttpResponse& response) {
  AsyncRead& read = job->read;
  const Extent& wanted = job->extent;
  const bool is_placed = !read.into.empty() || read.bytes.size() == wanted.nbytes;
  if (response.status == 200) {
    // The client has cut it out, or the object is the range.
    const std::string* length = response.header("Content-Length");
    read.object_nbytes = length == nullptr ? 0 : parse_number(*length).value_or(0);
    if (response.nbytes != wanted.nbytes) {
      check_object_range(read.key, response.nbytes, wanted.offset, wanted.nbytes);
    }
    if (is_placed) return;
    if (wanted.offset != 0 || response.nbytes != wanted.nbytes) {
      throw Error(ErrorCode::unsupported,
                  name_of(read.key) + ": the server ignores ranges, and " +
                      std::to_string(wanted.nbytes) + " bytes are not cut out of a whole object");
    }
    read.bytes = std::move(response.body);
    return;
  }
  const ContentRange range = range_of(response, name_of(read.key));
  if (range.first != wanted.offset || range.last - range.first + 1 != response.nbytes) {
    throw Error(ErrorCode::corrupt,
                name_of(read.key) + ": other bytes came than were asked for: from " +
                    std::to_string(range.first) + " to " + std::to_string(range.last) +
                    ", wanted " + std::to_string(wanted.nbytes) + " at " +
                    std::to_string(wanted.offset));
  }
  if (response.nbytes != wanted.nbytes) {
    if (is_placed) read.nbytes_before_end = std::min(response.nbytes, wanted.nbytes);
    check_object_range(read.key, range.last + 1, wanted.offset, wanted.nbytes);
  }
  if (!is_placed) read.bytes = std::move(response.body);
  read.object_nbytes = range.object_nbytes.value_or(0);
}

void Driver::take_suffix(const Job& job, HttpResponse& response) {
  AsyncRead& read = job->read;
  const std::uint64_t wanted = job->extent.nbytes;
  const std::uint64_t came = response.body.size();
  if (response.status == 200) {
    // All of it, of a server that ignores ranges or of an object that is no longer.
    read.object_nbytes = came;
    read.bytes = std::move(response.body);
    if (came > wanted) {
      std::memmove(read.bytes.data(), read.bytes.data() + (came - wanted), wanted);
      read.bytes.resize_keep(static_cast<std::size_t>(wanted));
    }
    return;
  }
  const ContentRange range = range_of(response, name_of(read.key));
  const std::uint64_t size = range.object_nbytes.value_or(range.last + 1);
  if (range.last + 1 != size || range.last - range.first + 1 != came ||
      came != std::min(wanted, size)) {
    throw Error(ErrorCode::corrupt,
                name_of(read.key) + ": other bytes came than its last " + std::to_string(wanted));
  }
  read.object_nbytes = size;
  read.bytes = std::move(response.body);
}

void Driver::take_unsatisfied(const Job& job, const HttpResponse& response) {
  AsyncRead& read = job->read;
  if (job->extent.kind == Extent::Kind::whole) throw protocol_->error_of(job->asked, response);
  const std::string* text = response.header("Content-Range");
  const auto range = text == nullptr ? std::nullopt : parse_content_range(*text);
  if (job->extent.kind == Extent::Kind::suffix) {
    // Of an object without bytes; of all others there are last ones.
    if (range && range->object_nbytes.value_or(0) != 0) {
      throw protocol_->error_of(job->asked, response);
    }
    read.found = true;
    read.bytes.clear();
    read.version = protocol_->version_of(response);
    read.object_nbytes = 0;
    return;
  }
  if (range && range->object_nbytes) {
    check_object_range(read.key, *range->object_nbytes, job->extent.offset, job->extent.nbytes);
  }
  throw Error(ErrorCode::corrupt,
              name_of(read.key) + ": ends before " + std::to_string(job->extent.offset) +
                  ", where " + std::to_string(job->extent.nbytes) + " bytes are wanted");
}

std::optional<AsyncDriver::ObjectState> Driver::state_of(std::string_view key,
                                                         const HttpRequest& request,
                                                         const HttpResponse& response) const {
  if (response.status == 404 && protocol_->is_missing_object(request, response)) {
    return std::nullopt;
  }
  if (!response.ok()) throw protocol_->error_of(request, response);
  const std::string* length = response.header("Content-Length");
  const auto nbytes = length == nullptr ? std::nullopt : parse_number(*length);
  if (nbytes && *nbytes > kMaxObjectNbytes) {
    throw Error(ErrorCode::corrupt,
                name_of(key) + ": has " + std::to_string(*nbytes) + " bytes, as its server says");
  }
  if (!nbytes) {
    throw Error(ErrorCode::unsupported, name_of(key) + ": the server does not say how long it is");
  }
  return ObjectState{*nbytes, protocol_->version_of(response)};
}

std::optional<AsyncDriver::ObjectState> Driver::look_up(std::string_view key) {
  protocol_->prepare();
  HttpRequest request = protocol_->look_up(key);
  HttpRequest asked;
  asked.method = request.method;
  asked.url = request.url;
  const HttpResponse response = client_->ask(std::move(request));
  if (response.error) std::rethrow_exception(response.error);
  return state_of(key, asked, response);
}

template <typename Body>
void Driver::for_each_page(std::string_view prefix, bool delimiter, Body body) {
  std::string below(prefix);
  if (!below.empty()) below += '/';
  std::unordered_set<std::string> seen;
  // Not by their order, which not all servers have: S3's directory buckets have none.
  std::unordered_set<std::size_t> first_keys, last_names;  // of pages, by hash
  const std::hash<std::string> hash;
  std::size_t names_of_nothing_new = 0;
  for (std::string from;;) {
    ListPage page = list_page(*protocol_, *client_, below, delimiter, from);
    const std::size_t names = page.objects.size() + page.prefixes.size();
    bool is_new = names > 0;
    if (is_new) {
      const std::string& name =
          page.objects.empty() ? page.prefixes.back() : page.objects.back().key;
      is_new = last_names.insert(hash(name)).second;
    }
    names_of_nothing_new = is_new ? 0 : names_of_nothing_new + std::max<std::size_t>(names, 1);
    if (!page.objects.empty() && !first_keys.insert(hash(page.objects.front().key)).second) {
      throw Error(ErrorCode::corrupt,
                  url() + ": its list comes back to " + page.objects.front().key);
    }
    // Folders as consoles make them ("a/b/"), and what could not be asked for by its key.
    std::erase_if(page.objects, [](const ListedObject& object) {
      if (key_fault(object.key) == nullptr) return false;
      tell_left_out(object.key);
      return true;
    });
    body(page);
    if (page.next.empty()) return;
    if (!seen.insert(page.next).second) {
      throw Error(ErrorCode::corrupt, url() + ": its list comes back to the same page");
    }
    if (names_of_nothing_new >= kMaxNamesOfNothingNew) {
      throw Error(ErrorCode::corrupt, url() + ": its list goes on, but names nothing new");
    }
    from = std::move(page.next);
  }
}

std::vector<ObjectSize> Driver::list_sizes(std::string_view prefix) {
  prefix = check_prefix(prefix);
  std::vector<ObjectSize> objects;
  for_each_page(prefix, false, [&](ListPage& page) {
    for (ListedObject& object : page.objects) {
      if (lies_below(object.key, prefix))
        objects.push_back({std::move(object.key), object.nbytes, object.written});
    }
  });
  std::ranges::sort(objects, {}, &ObjectSize::key);
  // Pages may overlap where objects are written meanwhile.
  const auto same = [](const ObjectSize& a, const ObjectSize& b) { return a.key == b.key; };
  objects.erase(std::unique(objects.begin(), objects.end(), same), objects.end());
  return objects;
}

std::vector<std::string> Driver::list(std::string_view prefix) {
  std::vector<std::string> keys;
  for (ObjectSize& object : list_sizes(prefix)) keys.push_back(std::move(object.key));
  return keys;
}

std::vector<DirEntry> Driver::list_dir(std::string_view prefix) {
  prefix = check_prefix(prefix);
  std::vector<DirEntry> entries;
  std::set<std::string> unnamed;
  const std::size_t skipped = prefix.empty() ? 0 : prefix.size() + 1;
  const auto add = [&](std::string_view key, bool is_prefix) {
    const std::string_view whole = key;
    if (is_prefix && key.ends_with('/')) key.remove_suffix(1);
    if (!lies_below(key, prefix)) return;
    if (key_fault(key) != nullptr) {
      unnamed.emplace(whole);
      return;
    }
    const std::string_view name = key.substr(skipped);
    if (name.find('/') == name.npos) entries.push_back({std::string(name), is_prefix, false});
  };
  for_each_page(prefix, true, [&](const ListPage& page) {
    for (const ListedObject& object : page.objects) add(object.key, false);
    for (const std::string& each : page.prefixes) add(each, true);
  });
  std::sort(entries.begin(), entries.end());
  // A prefix may be named on each page that it goes on to.
  entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  for (const std::string& each : unnamed) tell_left_out(each);
  return entries;
}

}  // namespace

std::optional<WrittenAt> within_second(std::optional<std::chrono::system_clock::time_point> time) {
  if (!time) return std::nullopt;
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time->time_since_epoch()).count();
  const auto earliest = written_time(seconds), latest = written_time(seconds, 999'999'999);
  if (!earliest || !latest) return std::nullopt;
  return WrittenAt{*earliest, *latest};
}

std::shared_ptr<HttpDriver> make_http_driver(std::shared_ptr<ObjectProtocol> protocol,
                                             std::shared_ptr<HttpClient> client,
                                             HttpAccess access) {
  return std::make_shared<Driver>(std::move(protocol), std::move(client), access);
}

}  // namespace headrace
