#include "engine/device/write_slab.h"

#include <algorithm>
#include <utility>

#include "base/trace.h"
#include "engine/device/drain.h"
#include "engine/device/slab.h"
#include "engine/device/stages.h"
#include "engine/write/from_host.h"
#include "headrace/error.h"

namespace headrace {
namespace {

constexpr std::size_t kPinnedAlignment = 64;
// Blocks of one size, for them to fit the next slab: pinning is slow.
constexpr std::size_t kPinnedBlock = 16 << 20;

void wait_for(Mark& mark) {
  const Span span("wait");
  mark.wait();
}

}  // namespace

std::size_t decoded_nbytes(const WriteItem& item, const ArrayLayout& layout) {
  return item.encoder == EncodedBy::host ? item.box.size() * layout.itemsize()
                                         : layout.chain.decoded_nbytes();
}

WriteSlab::WriteSlab(
    const StoredArray& array, Backend& backend, Queue& queue, int index, const std::uint8_t* fill)
    : array_(array),
      layout_(array.layout),
      plan_(array.layout.devices.encode),
      backend_(backend),
      kernels_(backend.kernels()),
      queue_(queue),
      index_(index),
      fill_(fill) {}

void WriteSlab::start(std::vector<WriteItem> items, std::uint32_t zstd_block_nbytes) {
  items_ = std::move(items);
  gather();
  download_elements();
  encode(zstd_block_nbytes);
  started_ = queue_.mark();
}

void WriteSlab::start_fill(std::uint32_t zstd_block_nbytes) {
  WriteItem& item = items_.emplace_back();
  decoded_ = Scratch<std::uint8_t>(queue_, aligned_nbytes(layout_.chain.decoded_nbytes()));
  item.device = decoded_.data();
  PlacementList fills(layout_.itemsize(), layout_.devices.decode.swap_nbytes);
  add_fill(fills, item.device);
  fills.run(queue_, kernels_);
  encode(zstd_block_nbytes);
  started_ = queue_.mark();
}

std::vector<WriteItem> WriteSlab::finish() {
  wait_for(*started_);
  download_encoded();
  return std::move(items_);
}

// The decoded chunks as their first step takes them.
void WriteSlab::gather() {
  std::size_t total = 0;
  for (const WriteItem& item : items_) total += aligned_nbytes(decoded_nbytes(item, layout_));
  decoded_ = Scratch<std::uint8_t>(queue_, total);
  const std::uint32_t swap_nbytes = layout_.devices.decode.swap_nbytes;
  const Span span("gather", total);
  PlacementList fills(layout_.itemsize(), swap_nbytes);
  PlacementList chunks(layout_.itemsize(), swap_nbytes);
  PlacementList elements(layout_.itemsize(), 0);
  std::uint8_t* at = decoded_.data();
  for (WriteItem& item : items_) {
    item.device = at;
    at += aligned_nbytes(decoded_nbytes(item, layout_));
    if (item.encoder == EncodedBy::host) {
      elements.add_packed(item.box, item.device);
      continue;
    }
    if (!covers(item.box, layout_.chunk_shape)) add_fill(fills, item.device);
    chunks.add_chunk(item.box, item.device, layout_.devices.decode.strides);
  }
  fills.run(queue_, kernels_);
  chunks.run_back(queue_, kernels_);
  elements.run_back(queue_, kernels_);
}

// A chunk of the fill value at `target`.
void WriteSlab::add_fill(PlacementList& fills, std::uint8_t* target) const {
  Box chunk;
  chunk.user = reinterpret_cast<std::byte*>(target);
  Axis axis;
  axis.user_step = static_cast<std::ptrdiff_t>(layout_.itemsize());
  axis.count = static_cast<std::int64_t>(layout_.chain.decoded_nbytes() / layout_.itemsize());
  chunk.axes.push_back(axis);
  fills.add_fill(chunk, fill_);
}

void WriteSlab::download_elements() {
  reserve_pinned([&](const WriteItem& item) {
    return item.encoder == EncodedBy::host ? decoded_nbytes(item, layout_) : 0;
  });
  for (const WriteItem& item : items_)
    if (item.encoder == EncodedBy::host)
      queue_.download(item.pinned.get(), item.device, item.nbytes);
}

void WriteSlab::encode(std::uint32_t zstd_block_nbytes) {
  std::vector<const std::uint8_t*> chunks;
  for (WriteItem& item : items_) {
    if (item.encoder == EncodedBy::host) continue;
    encoded_.push_back(&item);
    chunks.push_back(item.device);
  }
  if (chunks.empty() || !plan_.compressor) return;
  const Span span("encode", chunks.size() * layout_.chain.decoded_nbytes());
  const std::size_t nbytes = chunks.size() * sizeof(std::uint64_t);
  const Scratch<std::uint64_t> sizes(queue_, chunks.size());
  encoder_.emplace(queue_, kernels_, chunks, layout_.chain.decoded_nbytes());
  encoder_->run(plan_, zstd_block_nbytes, sizes.data());
  sizes_ = backend_.allocate_pinned(index_, nbytes);
  queue_.download(sizes_.get(), sizes.data(), nbytes);
}

void WriteSlab::download_encoded() {
  if (encoded_.empty()) return;
  for (std::size_t n = 0; n < encoded_.size(); ++n)
    encoded_[n]->nbytes =
        encoder_ ? encoded_nbytes(*encoded_[n], n) : layout_.chain.decoded_nbytes();
  reserve_pinned(
      [](const WriteItem& item) { return item.encoder == EncodedBy::host ? 0 : item.nbytes; });
  Drain drain(queue_);  // before pinned memory goes, when the rest fails
  const std::size_t prefix = plan_.prefix_nbytes;
  {
    Span span("copy");
    for (std::size_t n = 0; n < encoded_.size(); ++n) {
      const WriteItem& item = *encoded_[n];
      const std::uint8_t* from = encoder_ ? encoder_->result(n) : item.device;
      queue_.download(item.pinned.get() + prefix, from, item.nbytes - prefix);
      span.add(item.nbytes);
    }
  }
  wait_for(*queue_.mark());
  drain.dismiss();
}

// Of the n-th that was encoded.
std::size_t WriteSlab::encoded_nbytes(const WriteItem& item, std::size_t n) const {
  const auto* sizes = reinterpret_cast<const std::uint64_t*>(sizes_.get());
  if (sizes[n] > 0) return plan_.prefix_nbytes + sizes[n];
  throw Error(ErrorCode::device,
              array_.where("write", item.object_key()) + " codec " + plan_.compressor->codec +
                  ": the encoder failed");
}

// Room for nbytes_of(item) of each item that has any.
template <typename Nbytes>
void WriteSlab::reserve_pinned(Nbytes nbytes_of) {
  const auto aligned = [](std::size_t nbytes) {
    return (nbytes + kPinnedAlignment - 1) / kPinnedAlignment * kPinnedAlignment;
  };
  std::size_t left = 0;
  for (const WriteItem& item : items_) left += aligned(nbytes_of(item));
  const std::size_t usual = std::min(left, kPinnedBlock);
  Pinned block;
  std::size_t used = 0, room = 0;
  const Span span("pin", left);
  for (WriteItem& item : items_) {
    const std::size_t nbytes = nbytes_of(item);
    if (nbytes == 0) continue;
    if (used + nbytes > room) {
      room = std::max(usual, (nbytes + usual - 1) / usual * usual);
      block = backend_.allocate_pinned(index_, room);
      used = 0;
    }
    item.pinned = Pinned(block, block.get() + used);
    item.nbytes = nbytes;
    used += aligned(nbytes);
  }
}

}  // namespace headrace
