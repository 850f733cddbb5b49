#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace headrace::cli {

using Json = nlohmann::ordered_json;

// The reader of a pipe went away: nothing to say, nothing more to do.
struct BrokenPipe {};

// Where a command's results go: standard output, or a file that appears whole or not at all.
class Output {
 public:
  explicit Output(std::string path = "");
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(const void* data, std::size_t nbytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Flushes, and puts a file in its place. Without it a file is thrown away.
  void finish();
  bool is_terminal() const;

 private:
  [[noreturn]] void fail(int os_error) const;

  std::string path_;       // empty for standard output
  std::string temporary_;  // written until finish(); empty when path_ is written directly
  std::FILE* file_;
};

// One JSON document on standard output.
void print_json(const Json& json);
void print_text(std::string_view text);

// JSON of text that metadata hold; as a string when it is none.
Json parse_json(const std::string& text);

// "1.5 GiB", "812 B".
std::string human_nbytes(double nbytes);

}  // namespace headrace::cli
