#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "headrace/codec.h"

#pragma GCC visibility push(default)
namespace headrace {

// Process-wide settings. Read once a request; setting them affects requests that start later.
struct Config {
  int threads = 0;  // for reads and writes; 0: the processors this process may use
  // Scratch of one request, bytes. What is needed for one chunk (on writing, two shards) is taken
  // even where that is more. 0: 32 MiB a thread, 64 MiB at least.
  std::size_t memory_budget = 0;
  std::size_t coalesce_gap = std::size_t{1} << 20;   // neighbours in a shard closer than this are
  std::size_t coalesce_run = std::size_t{16} << 20;  // read together, up to a run this long
  // Of one read of a store across a network: requests under way at a time, at most twice as many as
  // the store sends at once; and the bytes that are asked for and not decoded yet, within half of
  // memory_budget where that is set.
  std::size_t io_depth = 256;
  std::size_t io_nbytes = std::size_t{256} << 20;
  // Seconds that a change of an array's or group's metadata (append, resize, attributes) waits for
  // another process that holds the lock of its folder (flock): `conflict` then.
  std::size_t lock_timeout = 600;
  Implementations implementations;
  std::string device = "cpu";  // of handles that name none
  // A device decodes batches of at least so many decoded bytes, the host's threads smaller ones;
  // not set: whichever takes less time by measured rates (codec_table() says from where on). Writes
  // from a device of fewer bytes, 1 MiB when not set, are encoded by the host's threads.
  std::optional<std::size_t> device_min_decode_nbytes;
  // Those rates. "measured": of this machine, by some 60 ms before the first choice that depends on
  // them, kept in a file below XDG_CACHE_HOME; "built-in": of one H200 and its host.
  std::string device_rates = "measured";
  // Decoded bytes on their way through a device at a time, four times: bounds pinned memory and
  // scratch.
  std::size_t device_slab_nbytes = std::size_t{256} << 20;
  // Blocks of the zstd frames that devices encode, 1 KiB to 128 KiB. Devices decode a few chunks of
  // smaller ones sooner: bench/results/device-encode.json.
  std::size_t device_zstd_block_nbytes = std::size_t{64} << 10;
  // GPUDirect Storage: files with chunks that are not compressed go to the device past the host's
  // memory, and past its page cache. "off"; "auto": where it is native; "on": reads to a device
  // that cannot go that way are `unsupported`, and say why.
  std::string gds = "off";
  // Files in memory (tmpfs, hugetlbfs) that are read to a device again and again: "on" keeps them
  // mapped and their pages locked, up to `device_mapped_nbytes` (0: a quarter of the host's
  // memory), and the device copies encoded bytes from where they lie. "off" lets go of all of them.
  std::string device_mapped = "off";
  std::size_t device_mapped_nbytes = 0;
};

Config config();
// Checks and installs. HEADRACE_THREADS, HEADRACE_MEMORY_BUDGET, HEADRACE_IO_DEPTH, HEADRACE_DEVICE
// and HEADRACE_FORCE_CODEC ("zstd:libzstd,gzip:isa-l") give the values a process starts with.
void set_config(const Config& config);

std::string version();
// What this build and machine offer, as a JSON object: version, processors, devices, codecs,
// io_uring, gds, limits.
std::string doctor_json();

}  // namespace headrace
#pragma GCC visibility pop
