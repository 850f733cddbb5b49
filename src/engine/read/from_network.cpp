#include "engine/read/from_network.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/thread_pool.h"
#include "engine/fetch/chunk_level.h"
#include "engine/fetch/in_flight.h"
#include "engine/fetch/plan.h"
#include "engine/fetch/shard_read.h"
#include "engine/query/regions.h"
#include "engine/read/chunk.h"
#include "engine/read/plain.h"

namespace headrace {
namespace {

using Flight = ReadsInFlight;

// Missing chunks that one thread fills before others get a turn.
constexpr std::size_t kFilledAtOnce = 64;
// As many objects come side by side as their parts would.
constexpr std::size_t kShardsSideBySide = 4;

template <typename Query>
class NetworkReader {
 public:
  // `others`: chunks that are read at the same time beside those of this one.
  NetworkReader(Request& request,
                const StoredArray& array,
                VlenArena* arena,
                AsyncReads& store,
                std::size_t others)
      : request_(request),
        array_(array),
        arena_(arena),
        store_(store),
        threads_(request.threads_for(array.layout)),
        others_(others),
        few_chunks_(threads_ < thread_count()) {}

  int threads() const { return threads_; }

  // Whether queries of one array are to be one reader's: that asks for each shard once.
  static bool joins(const ArrayLayout& layout) { return !layout.shards.empty() && !layout.regions; }

  // This outlives the flight. `queries`: one, or as joins() has it.
  void begin(Flight& flight, std::vector<Query> queries) {
    flight_ = &flight;
    if (queries.size() == 1) {
      add(std::make_unique<Regions>(*this, std::move(queries.front())));
    } else {
      add(std::make_unique<JoinedShards>(*this, std::move(queries)));
    }
  }

 private:
  using Level = ChunkLevel<Query>;
  using Levels = std::vector<std::shared_ptr<const Level>>;

  // Of a level.
  struct Child {
    std::shared_ptr<const Level> parent;
    std::size_t position;
  };

  // What chunks of one shape have in common.
  struct Grid {
    Grid(const Request& request, const ArrayState& state, std::shared_ptr<const ArrayLayout> layout)
        : array(state, std::move(layout)),
          plan(array, request, FetchFor::caller, 1),
          max_encoded(max_encoded_nbytes(array.layout.chain)),
          shard_nbytes(nbytes_of_shard(array.layout)) {}

    const StoredArray array;
    const FetchPlan plan;
    const std::uint64_t max_encoded;
    const std::uint64_t shard_nbytes;  // that is decoded as it comes; 0: there are no such shards
  };
  using GridOwner = std::shared_ptr<const Grid>;

  // Of a chunk: all bytes that are stored, or some of one that is not encoded.
  struct Piece {
    static constexpr std::size_t kWhole = SIZE_MAX;
    const Level* level;
    std::size_t position;  // in the level's cut
    std::size_t in_chunk;  // offset of the bytes, or kWhole
    ByteRange range;       // of the object
  };

  // What is wanted of one object, by ranges.
  struct Pieces {
    Pieces(GridOwner g, Levels l, std::string k)
        : grid(std::move(g)), levels(std::move(l)), key(std::move(k)) {}

    const Level& any_level() const { return *levels.front(); }

    const GridOwner grid;
    const Levels levels;  // of an object; of a shard one for each query
    const std::string key;
    std::vector<Piece> pieces{};
    std::vector<RangeGroup> runs{};                               // of the pieces
    std::vector<std::pair<const Level*, std::size_t>> missing{};  // chunks of the shard
    OneVersion version{};
  };

  // A chunk that is an object.
  class ObjectRead final : public Flight::Read {
   public:
    ObjectRead(NetworkReader& reader,
               GridOwner grid,
               std::shared_ptr<const Level> level,
               std::size_t position,
               std::string name)
        : reader_(reader), grid_(std::move(grid)), level_(std::move(level)), position_(position) {
      const CodecChain& chain = grid_->array.layout.chain;
      key = std::move(name);
      max_nbytes = chain.is_identity() ? chain.decoded_nbytes() : grid_->max_encoded;
      held_nbytes = chain.decoded_nbytes();
    }

    void use(std::size_t) override {
      reader_.at(*grid_, *level_, position_, [&] { check_answer(*this); });
      if (found) {
        reader_.decode(*grid_, *level_, position_, bytes);
      } else {
        reader_.fill(*grid_, *level_, position_);
      }
    }

   private:
    NetworkReader& reader_;
    const GridOwner grid_;
    const std::shared_ptr<const Level> level_;
    const std::size_t position_;
  };

  // A run of pieces.
  class RunRead final : public Flight::Read {
   public:
    RunRead(NetworkReader& reader, std::shared_ptr<Pieces> pieces, const RangeGroup& run)
        : reader_(reader), pieces_(std::move(pieces)), run_(run) {
      key = pieces_->key;
      extent = Extent::range(run.range.offset, run.range.nbytes);
      if_version = pieces_->any_level().version;
      held_nbytes = run.range.nbytes;
      if (std::byte* const target = straight_target()) {
        into = {target, static_cast<std::size_t>(run.range.nbytes)};
        held_nbytes = 0;
      }
    }

    std::size_t parts() override { return error || !found ? 1 : run_.members.size(); }

    void use(std::size_t part) override {
      const Piece& piece = pieces_->pieces[run_.members[part]];
      reader_.at(*pieces_->grid, *piece.level, piece.position, [&] { check(); });
      if (!found) {
        // Of several ranges one fills the whole chunk.
        if (&run_ == &pieces_->runs.front())
          reader_.fill(*pieces_->grid, *piece.level, piece.position);
        return;
      }
      if (!into.empty()) return;
      reader_.take(
          *pieces_->grid,
          piece,
          bytes.bytes().subspan(piece.range.offset - run_.range.offset, piece.range.nbytes));
    }

   private:
    // The caller's memory, where the run lies there as it is stored.
    std::byte* straight_target() const {
      const ArrayLayout& layout = pieces_->grid->array.layout;
      const Piece& piece = pieces_->pieces[run_.members.front()];
      if (run_.members.size() != 1 || piece.in_chunk == Piece::kWhole) return nullptr;
      Coordinates coordinates;
      Query query;
      piece.level->cut.child(piece.position, coordinates.at, query);
      auto sink = make_sink(query, layout.chunk_shape, layout.itemsize());
      return sink.direct(piece.in_chunk, static_cast<std::size_t>(piece.range.nbytes));
    }

    void check() {
      check_answer(*this);
      if (pieces_->any_level().parent) {
        if (!found) throw_changed(key);  // the index was there
        return;
      }
      pieces_->version.check(*this);
      if (found && object_nbytes != 0)
        check_plain_size(pieces_->grid->array.layout.chain, object_nbytes);
    }

    NetworkReader& reader_;
    const std::shared_ptr<Pieces> pieces_;
    const RangeGroup& run_;
  };

  // Where the shards' chunks are decoded, and are no shards themselves. As compressors leave what
  // they cannot compress: LZ4 adds a byte to 255.
  static std::uint64_t nbytes_of_shard(const ArrayLayout& layout) {
    if (layout.shards.size() != 1 || layout.regions || layout.chain.is_identity()) return 0;
    std::uint64_t nbytes = 0;
    const auto count = static_cast<std::uint64_t>(layout.shards[0].inner_count);
    const std::uint64_t decoded = layout.chain.decoded_nbytes();
    const std::uint64_t inner = decoded + decoded / 240 + 64;
    if (__builtin_mul_overflow(count, inner, &nbytes) ||
        __builtin_add_overflow(nbytes, layout.shards[0].index_nbytes, &nbytes)) {
      return 0;
    }
    return nbytes;
  }

  // Chunks that a shard has not.
  class Missing final : public Flight::Read {
   public:
    Missing(NetworkReader& reader, std::shared_ptr<Pieces> pieces)
        : reader_(reader), pieces_(std::move(pieces)) {
      ready = true;
    }

    std::size_t parts() override { return fills_of(*pieces_); }
    void use(std::size_t part) override { reader_.fill_missing(*pieces_, part); }

   private:
    NetworkReader& reader_;
    const std::shared_ptr<Pieces> pieces_;
  };

  class PieceSource final : public Flight::Source {
   public:
    PieceSource(NetworkReader& reader, std::shared_ptr<Pieces> pieces)
        : reader_(reader), pieces_(std::move(pieces)), fills_(!pieces_->missing.empty()) {}

    std::unique_ptr<Flight::Read> next() override {
      if (next_ < pieces_->runs.size())
        return std::make_unique<RunRead>(reader_, pieces_, pieces_->runs[next_++]);
      if (!std::exchange(fills_, false)) return nullptr;
      return std::make_unique<Missing>(reader_, pieces_);
    }

   private:
    NetworkReader& reader_;
    const std::shared_ptr<Pieces> pieces_;
    std::size_t next_ = 0;
    bool fills_;
  };

  class Shard final : public ShardRead<Query> {
   public:
    // `children`: the shard, as each query wants it. `inner_chunks` and `whole_nbytes`: as
    // ShardRead has them.
    Shard(NetworkReader& reader,
          GridOwner grid,
          std::vector<Child> children,
          std::size_t inner_chunks,
          std::uint64_t whole_nbytes)
        : ShardRead<Query>(reader.request_,
                           grid->array,
                           children.front().parent,
                           children.front().position,
                           inner_chunks,
                           whole_nbytes),
          reader_(reader),
          grid_(std::move(grid)),
          children_(std::move(children)),
          whole_nbytes_(whole_nbytes) {}

    // Of a shard that came whole each chunk is one: threads share its bytes.
    std::size_t parts() override {
      if (!this->is_whole() || this->error || !this->found) return 1;
      try {
        pieces_ = reader_.pieces_of_shard(grid_, levels_of(this->open()), 0);
      } catch (...) {
        failure_ = std::current_exception();
        return 1;
      }
      return std::max<std::size_t>(pieces_->pieces.size() + fills(), 1);
    }

    void use(std::size_t part) override {
      if (failure_) std::rethrow_exception(failure_);
      if (is_too_large()) {
        return reader_.add(std::make_unique<ByIndex>(reader_, grid_, std::move(children_)));
      }
      if (!pieces_) return ShardRead<Query>::use(part);
      const std::size_t n = pieces_->pieces.size();
      if (part < n) {
        const Piece& piece = pieces_->pieces[part];
        const ConstBytes stored = this->bytes;
        reader_.take(*grid_, piece, stored.subspan(piece.range.offset, piece.range.nbytes));
      } else if (part - n < fills()) {
        reader_.fill_missing(*pieces_, part - n);
      }
    }

   protected:
    void opened(std::shared_ptr<const Level> level) override {
      if (!level) {
        for (const Child& child : children_) reader_.fill(*grid_, *child.parent, child.position);
        return;
      }
      Levels levels = levels_of(std::move(level));
      if (is_innermost(grid_->array.layout, *levels.front())) {
        auto pieces = reader_.pieces_of_shard(grid_, std::move(levels), whole_nbytes_);
        return reader_.add(std::make_unique<PieceSource>(reader_, std::move(pieces)));
      }
      for (std::shared_ptr<const Level>& each : levels)
        reader_.add(std::make_unique<Children>(reader_, grid_, std::move(each)));
    }

   private:
    std::size_t fills() const { return fills_of(*pieces_); }

    // Of all queries, where that of the first one is there.
    Levels levels_of(std::shared_ptr<const Level> first) const {
      Levels levels{std::move(first)};
      for (std::size_t i = 1; i < children_.size(); ++i)
        levels.push_back(same_shard(*levels.front(), children_[i].parent, children_[i].position));
      std::size_t chunks = 0;
      for (const auto& level : levels) chunks += level->cut.size();
      reader_.note_chunks(chunks);
      return levels;
    }

    // A shard may hold more than its chunks: what was written anew, and left. Then the index tells
    // which of it is wanted. One whose bytes do not match its checksum is none of these: its ranges
    // have no checksum, and would be taken for what was written.
    bool is_too_large() const {
      if (!this->is_whole() || !this->error) return false;
      try {
        std::rethrow_exception(this->error);
      } catch (const Error& why) {
        return headrace::is_too_large(why);
      } catch (...) {
        return false;
      }
    }

    NetworkReader& reader_;
    const GridOwner grid_;
    std::vector<Child> children_;
    const std::uint64_t whole_nbytes_;
    // Of a shard that came whole.
    std::shared_ptr<Pieces> pieces_;
    std::exception_ptr failure_;
  };

  // A shard that is larger than what may come whole.
  class ByIndex final : public Flight::Source {
   public:
    ByIndex(NetworkReader& reader, GridOwner grid, std::vector<Child> children)
        : shard_(std::make_unique<Shard>(reader, std::move(grid), std::move(children), 0, 0)) {}

    std::unique_ptr<Flight::Read> next() override { return std::move(shard_); }

   private:
    std::unique_ptr<Shard> shard_;
  };

  // Of a level: objects, or the shards of one.
  class Children final : public Flight::Source {
   public:
    Children(NetworkReader& reader, GridOwner grid, std::shared_ptr<const Level> level)
        : reader_(reader),
          grid_(std::move(grid)),
          level_(std::move(level)),
          whole_nbytes_(level_->parent ? 0 : reader.whole_nbytes(*grid_, level_->cut.size())) {}

    std::unique_ptr<Flight::Read> next() override {
      for (;;) {
        if (ranges_) {
          if (auto read = ranges_->next()) return read;
          ranges_.reset();
        }
        if (next_ == level_->cut.size()) return nullptr;
        const std::size_t position = next_++;
        if (!is_innermost(grid_->array.layout, *level_)) return shard(position);
        if (auto read = whole_or_ranges(position)) return read;
      }
    }

   private:
    std::unique_ptr<Flight::Read> shard(std::size_t position) {
      std::vector<Child> one{{level_, position}};
      const std::size_t chunks = whole_nbytes_ > 0 ? reader_.inner_chunks(*grid_, one) : 0;
      return std::make_unique<Shard>(reader_, grid_, std::move(one), chunks, whole_nbytes_);
    }

    // Null: it comes by ranges_.
    std::unique_ptr<Flight::Read> whole_or_ranges(std::size_t position) {
      Coordinates coordinates;
      Query query;
      level_->cut.child(position, coordinates.at, query);
      std::string name = grid_->array.key(coordinates.at);
      auto pieces = std::make_shared<Pieces>(grid_, Levels{level_}, name);
      if (reader_.add_plain_pieces(*pieces, *level_, position, {0, 0}, query)) {
        reader_.request_.count_encoded(grid_->array.layout.chain.decoded_nbytes());
        reader_.make_runs(*pieces);
        ranges_.emplace(reader_, std::move(pieces));
        return nullptr;
      }
      return std::make_unique<ObjectRead>(reader_, grid_, level_, position, std::move(name));
    }

    NetworkReader& reader_;
    const GridOwner grid_;
    const std::shared_ptr<const Level> level_;
    const std::uint64_t whole_nbytes_;
    std::optional<PieceSource> ranges_;
    std::size_t next_ = 0;
  };

  // Of several queries: each shard once, in the order in which they want them.
  class JoinedShards final : public Flight::Source {
   public:
    JoinedShards(NetworkReader& reader, std::vector<Query> queries)
        : reader_(reader), grid_(reader.grid_of(reader.array_.layout_owner)) {
      std::unordered_map<std::string, std::size_t> known;
      for (Query& query : queries) {
        const auto level = top_level(grid_->array.layout, Region{}, std::move(query));
        for (std::size_t i = 0; i < level->cut.size(); ++i) {
          Coordinates coordinates;
          Query inside;
          level->cut.child(i, coordinates.at, inside);
          const auto [at, is_new] =
              known.try_emplace(grid_->array.key(coordinates.at), shards_.size());
          if (is_new) shards_.emplace_back();
          shards_[at->second].push_back({level, i});
        }
      }
      reader.note_chunks(shards_.size());
      whole_nbytes_ = reader.whole_nbytes(*grid_, shards_.size());
    }

    std::unique_ptr<Flight::Read> next() override {
      if (next_ == shards_.size()) return nullptr;
      std::vector<Child>& children = shards_[next_++];
      const std::size_t chunks = whole_nbytes_ > 0 ? reader_.inner_chunks(*grid_, children) : 0;
      return std::make_unique<Shard>(reader_, grid_, std::move(children), chunks, whole_nbytes_);
    }

   private:
    NetworkReader& reader_;
    const GridOwner grid_;
    std::vector<std::vector<Child>> shards_;
    std::uint64_t whole_nbytes_ = 0;
    std::size_t next_ = 0;
  };

  class Regions final : public Flight::Source {
   public:
    Regions(NetworkReader& reader, Query query) : reader_(reader) {
      const ArrayLayout& layout = reader.array_.layout;
      if (!layout.regions) {
        begin({reader.array_.layout_owner, Region{}, std::move(query)});
        return;
      }
      reader.query_ = std::move(query);
      reader.regions_.emplace(reader.query_, GridCut(layout.metadata->chunk_edges));
    }

    std::unique_ptr<Flight::Read> next() override {
      for (;;) {
        if (objects_) {
          if (auto read = objects_->next()) return read;
          objects_.reset();
        }
        if (!reader_.regions_ || next_ == reader_.regions_->size()) return nullptr;
        begin(region_part<Query>(reader_.array_.layout, *reader_.regions_, next_++));
      }
    }

   private:
    void begin(RegionPart<Query> part) {
      GridOwner grid = reader_.grid_of(std::move(part.layout));
      auto level = top_level(grid->array.layout, part.region, std::move(part.query));
      reader_.note_chunks(level->cut.size());
      objects_.emplace(reader_, std::move(grid), std::move(level));
    }

    NetworkReader& reader_;
    std::optional<Children> objects_;
    std::size_t next_ = 0;
  };

  void add(std::unique_ptr<Flight::Source> source) {
    source->store = &store_;
    flight_->add(std::move(source));
  }

  GridOwner grid_of(std::shared_ptr<const ArrayLayout> layout) {
    GridOwner& grid = grids_[layout.get()];
    if (!grid) grid = std::make_shared<const Grid>(request_, array_.state, std::move(layout));
    return grid;
  }

  // What a shard may have that comes by one request, whole where its index is not known: no more
  // than is asked for at once of one object anyway, or as much as there is room for of all
  // `shards` of them, where they are enough to keep the connections busy.
  std::uint64_t whole_nbytes(const Grid& grid, std::size_t shards) const {
    const std::uint64_t nbytes = grid.shard_nbytes;
    if (nbytes == 0) return 0;
    const std::uint64_t room = request_.io_nbytes();
    const bool is_small = nbytes <= std::min(grid.plan.near().run, room);
    const bool are_few = shards <= room / nbytes;
    return is_small || (are_few && shards >= kShardsSideBySide) ? nbytes : 0;
  }

  // Of how many chunks of one shard something is wanted.
  std::size_t inner_chunks(const Grid& grid, const std::vector<Child>& children) const {
    const ShardLevel& shard = grid.array.layout.shards.front();
    std::set<std::int64_t> wanted;
    Coordinates coordinates;
    Query query;
    for (const Child& child : children) {
      child.parent->cut.child(child.position, coordinates.at, query);
      const Level inside(std::move(query), shard.inner_shape);
      if (children.size() == 1) return inside.cut.size();
      for (std::size_t i = 0; i < inside.cut.size(); ++i) {
        inside.cut.child(i, coordinates.at, query);
        wanted.insert(linear_index(coordinates.at, shard.inner_grid));
      }
    }
    return wanted.size();
  }

  void note_chunks(std::size_t n) {
    if (n + others_ < 2 * static_cast<std::size_t>(threads_)) few_chunks_ = true;
  }

  DecodeContext decode_context() const { return {few_chunks_ ? thread_count() : 1, arena_}; }

  // Names the array and the chunk in what goes wrong.
  template <typename Body>
  void at(const Grid& grid, const Level& level, std::size_t position, Body body) {
    try {
      body();
    } catch (const Error& error) {
      throw located(grid.array, level, position, error);
    }
  }

  // What is wanted of a chunk that lies from `where` on; false when that is to be read whole.
  bool add_plain_pieces(Pieces& pieces,
                        const Level& level,
                        std::size_t position,
                        const ByteRange& where,
                        const Query& query) {
    const ArrayLayout& layout = pieces.grid->array.layout;
    if (!layout.chain.is_identity()) return false;
    auto sink = make_sink(query, layout.chunk_shape, layout.itemsize());
    if (!sink.ordered()) return false;
    const std::size_t nbytes = layout.chain.decoded_nbytes();
    const auto ranges = plain_ranges(sink, pieces.grid->plan.near());
    const bool is_whole = ranges.size() == 1 && ranges[0].nbytes == nbytes;
    if (is_whole && !sink.direct(0, nbytes)) return false;
    for (const ByteRange& range : ranges) {
      pieces.pieces.push_back({&level,
                               position,
                               static_cast<std::size_t>(range.offset),
                               {where.offset + range.offset, range.nbytes}});
    }
    return true;
  }

  // `run_nbytes`: of so many bytes a run may be, besides what is configured.
  std::shared_ptr<Pieces> pieces_of_shard(const GridOwner& grid,
                                          Levels levels,
                                          std::uint64_t run_nbytes) {
    std::string key = levels.front()->key;
    auto pieces = std::make_shared<Pieces>(grid, std::move(levels), std::move(key));
    for (const auto& level : pieces->levels) add_pieces(*pieces, *level);
    make_runs(*pieces, run_nbytes);
    return pieces;
  }

  void add_pieces(Pieces& pieces, const Level& level) {
    const Grid& grid = *pieces.grid;
    const CodecChain& chain = grid.array.layout.chain;
    Coordinates coordinates;
    Query query;
    for (std::size_t i = 0; i < level.cut.size(); ++i) {
      level.cut.child(i, coordinates.at, query);
      std::optional<ByteRange> range;
      at(grid, level, i, [&] {
        range = find_inner(level, coordinates);
        if (!range) return;
        if (chain.is_identity()) check_plain_size(chain, range->nbytes);
        checked_encoded_nbytes(range->nbytes, grid.max_encoded);
      });
      if (!range) {
        pieces.missing.emplace_back(&level, i);
        continue;
      }
      request_.count_encoded(range->nbytes);
      if (!add_plain_pieces(pieces, level, i, *range, query))
        pieces.pieces.push_back({&level, i, Piece::kWhole, *range});
    }
  }

  void make_runs(Pieces& pieces, std::uint64_t run_nbytes = 0) {
    std::vector<ByteRange> ranges;
    ranges.reserve(pieces.pieces.size());
    for (const Piece& piece : pieces.pieces) ranges.push_back(piece.range);
    Coalescing near = pieces.grid->plan.near();
    near.run = std::max(near.run, run_nbytes);
    pieces.runs = coalesce(ranges, near);
  }

  void fill(const Grid& grid, const Level& level, std::size_t position) {
    const ArrayLayout& layout = grid.array.layout;
    Coordinates coordinates;
    Query query;
    level.cut.child(position, coordinates.at, query);
    const Shape& shape =
        is_innermost(layout, level) ? layout.chunk_shape : layout.shards[level.depth].shard_shape;
    make_sink(query, shape, layout.itemsize()).fill(layout.fill);
  }

  // How many parts fill_missing() has.
  static std::size_t fills_of(const Pieces& pieces) {
    return (pieces.missing.size() + kFilledAtOnce - 1) / kFilledAtOnce;
  }

  void fill_missing(const Pieces& pieces, std::size_t part) {
    const std::size_t first = part * kFilledAtOnce;
    const std::size_t end = std::min(first + kFilledAtOnce, pieces.missing.size());
    for (std::size_t i = first; i < end; ++i) {
      const auto& [level, position] = pieces.missing[i];
      fill(*pieces.grid, *level, position);
    }
  }

  // A whole object.
  void decode(const Grid& grid, const Level& level, std::size_t position, ConstBytes encoded) {
    request_.count_encoded(encoded.size());
    take(grid, {&level, position, Piece::kWhole, {0, encoded.size()}}, encoded);
  }

  void take(const Grid& grid, const Piece& piece, ConstBytes bytes) {
    const ArrayLayout& layout = grid.array.layout;
    Coordinates coordinates;
    Query query;
    piece.level->cut.child(piece.position, coordinates.at, query);
    auto sink = make_sink(query, layout.chunk_shape, layout.itemsize());
    at(grid, *piece.level, piece.position, [&] {
      if (piece.in_chunk == Piece::kWhole) {
        decode_chunk(layout.chain, bytes, sink, decode_context());
      } else {
        sink.put(piece.in_chunk, bytes);
      }
    });
  }

  Request& request_;
  const StoredArray& array_;
  VlenArena* const arena_;
  AsyncReads& store_;
  const int threads_;
  const std::size_t others_;
  std::atomic<bool> few_chunks_;  // at a time: each may use several threads
  // Used by the sources, one at a time.
  Query query_{};
  std::optional<typename Query::Cut> regions_;  // of a rectilinear grid; borrows from query_
  std::map<const ArrayLayout*, GridOwner> grids_;
  Flight* flight_ = nullptr;  // its reads refer to all of the above
};

// What one reader reads.
template <typename Query>
struct Part {
  Part(Request& request, const NetworkQuery& query, AsyncReads& store, std::size_t others)
      : reader(request, *query.array, query.arena, store, others) {}

  NetworkReader<Query> reader;
  std::vector<Query> queries{};
};
using AnyPart = std::variant<Part<Box>, Part<Points>>;

}  // namespace

void read_from_network(Request& request, std::vector<NetworkQuery> queries) {
  if (queries.empty()) return;
  const std::function<void()> check = [&] { request.check(); };
  std::deque<AnyPart> parts;
  std::map<std::pair<const StoredArray*, std::size_t>, AnyPart*> joined;
  int threads = thread_count();
  for (NetworkQuery& query : queries) {
    const ArrayLayout& layout = query.array->layout;
    AsyncReads& store = *query.array->driver.async_reads();
    const auto add = [&]<typename Query>(Query& wanted) {
      AnyPart*& known = joined[{query.array, query.query.index()}];
      if (known == nullptr || !NetworkReader<Query>::joins(layout)) {
        known = &parts.emplace_back(
            std::in_place_type<Part<Query>>, request, query, store, queries.size() - 1);
      }
      auto& part = std::get<Part<Query>>(*known);
      part.queries.push_back(std::move(wanted));
      threads = std::min(threads, part.reader.threads());
    };
    std::visit(add, query.query);
  }
  AsyncReads& first = *queries.front().array->driver.async_reads();
  Flight flight(first, limits_of_flight(request, first), check);
  // What is added last is asked for first.
  for (std::size_t i = parts.size(); i-- > 0;) {
    std::visit([&](auto& part) { part.reader.begin(flight, std::move(part.queries)); }, parts[i]);
  }
  request.parallel(
      static_cast<std::size_t>(threads), [&](std::size_t) { flight.work(); }, threads);
}

}  // namespace headrace
