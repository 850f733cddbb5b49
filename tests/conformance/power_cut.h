#pragma once

// What a power cut may leave of a folder, by what was synced before:
//
//   PowerCut disk(root);              // the folder is taken for synced as it is
//   ...                               // writes through the table of system calls are recorded
//   disk.leave(at, seed, elsewhere);  // one state that a cut after `at` of them could leave
//
// The model is that of POSIX, and harder than any file system of Linux: the bytes of a file are
// safe by fsync() of it, the entries of a folder by fsync() of that folder, all by syncfs(). Of the
// rest each file has, by chance, what it had when it was synced last, nothing, the beginning, or
// zeros of its full length; each entry is, by chance, that of any time since. A folder that has no
// entry takes with it what is below.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace headrace::test {

class PowerCut {
 public:
  explicit PowerCut(const std::string& root);
  ~PowerCut();
  PowerCut(const PowerCut&) = delete;
  PowerCut& operator=(const PowerCut&) = delete;

  // System calls that changed or synced something.
  std::size_t calls() const;
  // Notes what has been promised by now, for whoever looks at states of later.
  std::size_t now() const { return calls(); }
  void leave(std::size_t at, unsigned seed, const std::string& target) const;

 private:
  struct Recorder;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace headrace::test
