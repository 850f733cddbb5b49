// Runs a fuzz target over the files of folders, for compilers without libFuzzer:
//   fuzz_replay TARGET FOLDER...
// Each source of tests/fuzz is compiled with its LLVMFuzzerTestOneInput named as the target is.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#define TARGET(name) extern "C" int name(const std::uint8_t* data, std::size_t size);
#include "fuzz_targets.inc"
#undef TARGET

namespace fs = std::filesystem;

using Target = int (*)(const std::uint8_t* data, std::size_t size);

static Target find_target(std::string_view name) {
#define TARGET(target) \
  if (name == #target) return target;
#include "fuzz_targets.inc"
#undef TARGET
  throw std::invalid_argument("there is no fuzz target " + std::string(name));
}

static std::vector<std::uint8_t> read_file(const fs::path& path) {
  std::ifstream file;
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file.open(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

static int replay(int argc, char** argv) {
  if (argc < 3) throw std::invalid_argument("usage: fuzz_replay TARGET FOLDER...");
  const Target target = find_target(argv[1]);
  std::size_t count = 0;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : fs::directory_iterator(argv[i])) {
      const std::vector<std::uint8_t> bytes = read_file(entry.path());
      target(bytes.data(), bytes.size());
      ++count;
    }
  }
  std::printf("%zu inputs\n", count);
  if (count == 0) std::fprintf(stderr, "no corpus files: nothing was tested\n");
  return count == 0 ? 1 : 0;
}

int main(int argc, char** argv) {
  try {
    return replay(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
