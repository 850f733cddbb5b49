#pragma once

// The place of one chunk's wanted elements in the caller's memory.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "codec/codec.h"
#include "engine/query/cut.h"

namespace headrace {

class ChunkSink : public PieceSink {
 public:
  // Takes bytes that lie together in the chunk and in the caller's memory.
  using UnitVisitor = FunctionRef<void(std::size_t offset, std::size_t nbytes, std::byte* user)>;

  // False when elements are not wanted in the order of the chunk: then a PieceSink's functions may
  // not be called.
  virtual bool ordered() const = 0;
  // Of the elements that the array has of the chunk: what follows is behind the array's edge.
  virtual bool wants_last() const = 0;
  virtual std::size_t wanted_nbytes() const = 0;
  virtual std::size_t unit_nbytes() const = 0;              // of one unit, all are alike
  virtual void for_each_unit(UnitVisitor visit) const = 0;  // in the chunk's order if ordered()

  // From a whole decoded chunk to the caller, and back.
  virtual void scatter(const std::byte* chunk) const = 0;
  virtual void gather(std::byte* chunk) const = 0;
  // Every wanted element becomes `element`.
  virtual void fill(const std::vector<std::byte>& element) const = 0;
};

class BoxSink final : public ChunkSink {
 public:
  // `box` is relative to a chunk of `chunk_shape` in C order.
  BoxSink(const Box& box, const Shape& chunk_shape, std::size_t itemsize);

  std::size_t begin() const override { return first_; }
  std::size_t end() const override { return first_ + extent_; }
  bool wants(std::size_t offset, std::size_t nbytes) const override;
  void put(std::size_t offset, ConstBytes piece) override;
  std::byte* direct(std::size_t offset, std::size_t nbytes) override;

  bool ordered() const override { return ordered_; }
  bool wants_last() const override { return end() >= inside_; }
  std::size_t wanted_nbytes() const override { return wanted_nbytes_; }
  std::size_t unit_nbytes() const override { return unit_; }
  void for_each_unit(UnitVisitor visit) const override;
  void scatter(const std::byte* chunk) const override;
  void gather(std::byte* chunk) const override;
  void fill(const std::vector<std::byte>& element) const override;

 private:
  // A dimension of the copy, in bytes. Neighbours that step alike were joined.
  struct Dim {
    std::int64_t count;
    std::int64_t chunk_step;
    std::ptrdiff_t user_step;
    const std::int64_t* list;  // element indices: times chunk_step
    const std::int64_t* user_list;
    std::size_t inner_extent;  // bytes of the chunk that one index spans
  };
  struct Position;

  template <typename Row>
  void for_each_row(Row row) const;
  // The first row that ends behind `offset`; false when there is none.
  bool locate(std::size_t offset, Position& position) const;
  bool next_row(Position& position) const;

  std::vector<Dim> dims_;   // the last is the row
  std::size_t unit_;        // bytes that lie together on both sides
  std::size_t first_ = 0;   // offset of the first wanted byte
  std::size_t extent_ = 0;  // from there to the last
  std::size_t wanted_nbytes_ = 0;
  std::byte* user_ = nullptr;
  bool ordered_ = true;
  std::size_t inside_;  // to the end of the last element that the array has
};

class PointSink final : public ChunkSink {
 public:
  PointSink(const Points& points, const Shape& chunk_shape, std::size_t itemsize);

  std::size_t begin() const override;
  std::size_t end() const override;
  bool wants(std::size_t offset, std::size_t nbytes) const override;
  void put(std::size_t offset, ConstBytes piece) override;
  std::byte* direct(std::size_t offset, std::size_t nbytes) override;

  bool ordered() const override { return true; }
  bool wants_last() const override { return end() >= inside_; }
  std::size_t wanted_nbytes() const override { return places_.size() * itemsize_; }
  std::size_t unit_nbytes() const override { return itemsize_; }
  void for_each_unit(UnitVisitor visit) const override;
  void scatter(const std::byte* chunk) const override;
  void gather(std::byte* chunk) const override;
  void fill(const std::vector<std::byte>& element) const override;

 private:
  struct Place {
    std::size_t offset;  // in the chunk
    std::byte* user;
  };
  // Index of the first place that ends behind `offset`.
  std::size_t locate(std::size_t offset) const;

  std::vector<Place> places_;  // by offset; of equal ones the caller's last comes last
  std::size_t itemsize_;
  std::size_t inside_;  // as BoxSink has it
};

inline BoxSink make_sink(const Box& box, const Shape& chunk, std::size_t itemsize) {
  return BoxSink(box, chunk, itemsize);
}
inline PointSink make_sink(const Points& points, const Shape& chunk, std::size_t itemsize) {
  return PointSink(points, chunk, itemsize);
}

}  // namespace headrace
