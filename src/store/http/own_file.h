#pragma once

#include <filesystem>

namespace headrace {

// The file that this code is in, a library or a program; empty where it cannot be told.
std::filesystem::path own_file();

}  // namespace headrace
