#include <atomic>
#include <functional>

#include "base/mutex.h"
#include "base/thread_pool.h"
#include "codec/scratch.h"
#include "codec/vlen.h"
#include "engine/fetch/chunk_level.h"
#include "engine/fetch/stored_chunks.h"
#include "engine/read/chunk.h"
#include "engine/read/plain.h"
#include "engine/request/request.h"
#include "engine/request/stored_array.h"

namespace headrace {
namespace {

using Report = std::function<void(const std::string& key, const Error& error)>;

// One at a time.
class Reports {
 public:
  explicit Reports(const Report& report) : report_(report) {}
  void add(const std::string& name, const Error& error) {
    const MutexLock lock(mutex_);
    report_(name, error);
  }

 private:
  Mutex mutex_;
  const Report& report_ GUARDED_BY(mutex_);
};

// Decodes whole chunks into scratch: a read that needs a part may leave the rest unchecked.
class Verifier {
 public:
  Verifier(Request& request,
           const StoredArray& array,
           Reports& reports,
           std::atomic<std::uint64_t>* encoded_nbytes)
      : request_(request), array_(array), reports_(reports), encoded_nbytes_(encoded_nbytes) {}

  std::int64_t verify_object(const std::string& key) {
    const auto look = [&]() -> std::int64_t {
      const auto reader = array_.driver.open(key);
      if (!reader) return 0;  // removed since it was listed
      const bool is_shard = !array_.layout.shards.empty();
      // Of these not all is read at once for decoding.
      if (is_shard || array_.layout.chain.is_identity()) reader->check();
      if (is_shard) return verify_shard(key, key, *reader, 0, reader->size(), 0);
      decode(*reader, 0, reader->size());
      return 1;
    };
    return guard(key, [&] { return again_when_changed(look); });
  }

 private:
  // Reports what goes wrong under `name`; a bad chunk counts as looked at.
  template <typename Body>
  std::int64_t guard(const std::string& name, Body body) {
    request_.check();
    try {
      return body();
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled) throw;
      if (is_changed(error) && name.ends_with(']')) throw;  // a part: all of it is looked at anew
      reports_.add(name, error);
      return 1;
    }
  }

  void decode(const ObjectReader& reader, std::uint64_t base, std::uint64_t nbytes) {
    if (encoded_nbytes_ != nullptr) encoded_nbytes_->fetch_add(nbytes, std::memory_order_relaxed);
    const CodecChain& chain = array_.layout.chain;
    if (chain.is_identity()) {
      check_plain_size(chain, nbytes);
      return;
    }
    Scratch encoded(checked_encoded_nbytes(nbytes, max_encoded_nbytes(chain)));
    reader.read(base, encoded.bytes());
    Scratch decoded(chain.decoded_nbytes());
    VlenArena arena;
    chain.decode(encoded.bytes(), decoded.bytes(), {1, &arena});
  }

  std::int64_t verify_shard(const std::string& key,
                            const std::string& name,
                            const ObjectReader& reader,
                            std::uint64_t base,
                            std::uint64_t nbytes,
                            std::size_t depth) {
    const ShardLevel& level = array_.layout.shards[depth];
    const auto index = load_shard_index(array_, level, key, reader, {base, nbytes});
    std::int64_t n = 0;
    for (std::int64_t i = 0; i < level.inner_count; ++i) {
      if (!index->has(i)) continue;
      const std::string inner = name + "[" + std::to_string(i) + "]";
      n += guard(inner, [&]() -> std::int64_t {
        const auto [offset, inner_nbytes] = index->range(i);
        if (depth + 1 < array_.layout.shards.size()) {
          return verify_shard(key, inner, reader, base + offset, inner_nbytes, depth + 1);
        }
        decode(reader, base + offset, inner_nbytes);
        return 1;
      });
    }
    return n;
  }

  Request& request_;
  const StoredArray& array_;
  Reports& reports_;
  std::atomic<std::uint64_t>* encoded_nbytes_;
};

}  // namespace

std::int64_t Array::verify(const std::function<void(const std::string&, const Error&)>& bad,
                           const ReadOptions& options) const {
  const Listing listing = list_chunks(*state_);
  Request request(options, nullptr);
  const StoredArray array(*state_, state_->layout(options.implementations));
  Reports reports(bad);
  std::atomic<std::int64_t> n{0};
  request.parallel(
      listing.inside.size(),
      [&](std::size_t i) {
        const std::string& key = listing.inside[i];
        const StoredArray inside(*state_, layout_of_object(array, key));
        n += Verifier(request, inside, reports, options.encoded_nbytes).verify_object(key);
      },
      request.threads_for(array.layout));
  return n;
}

}  // namespace headrace
