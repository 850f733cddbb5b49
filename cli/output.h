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

// Where a command's results go: standard output, or a file that appears whole or not at all. What
// is written until then has no name, or one that nobody else has; a link is followed, and stays.
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
  void open_aside();
  void put_in_place();
  [[noreturn]] void fail(int os_error) const;

  std::string path_;       // empty for standard output
  std::string target_;     // where its links lead; empty when path_ is written directly
  std::string temporary_;  // written until finish(); empty while the file has no name
  std::FILE* file_ = nullptr;
};

// The three standard streams are there from now on: those that were closed fail when they are
// written. Without it the next file opened, a chunk of somebody's data, would be one of them.
void keep_standard_streams();

// On standard error, as far as that can be written; a command goes on in any case.
void say(std::string_view text) noexcept;

// One JSON document on standard output.
void print_json(const Json& json);
// Lines of text. What of it comes from a store is made printable before or here.
void print_text(std::string_view text);

// Lines with all but the line breaks made printable().
std::string terminal_text(std::string_view text);
// A document that is fit for a terminal, too: what it may not show is escaped as JSON has it.
std::string json_text(const Json& json, int indent = -1);

// JSON of text that metadata hold; as a string when it is none.
Json parse_json(const std::string& text);

// "1.5 GiB", "812 B".
std::string human_nbytes(double nbytes);
// "1 array", "2 arrays", of a mean "1.5 chunks".
std::string counted(std::int64_t n, std::string_view noun);
std::string counted(double n, std::string_view noun);

}  // namespace headrace::cli
