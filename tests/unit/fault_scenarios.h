#pragma once

// What users do to stores in folders and archives, each with what must hold whatever system call
// failed in it: what it did not touch is as before, every chunk is the old one or the new one.

#include <ostream>
#include <string>
#include <vector>

namespace headrace::test {

struct FaultScenario {
  const char* name;
  void (*prepare)(const std::string& root);
  // The part that fails. Throws what the library throws.
  void (*act)(const std::string& root);
  // By reading anew, without faults. `done`: act() has returned.
  void (*check)(const std::string& root, bool done);
  bool repeatable = true;  // whether act() may follow on one that failed, and on one that did not
};

inline void PrintTo(const FaultScenario& scenario, std::ostream* out) { *out << scenario.name; }

const std::vector<FaultScenario>& fault_scenarios();

// What their stores sync from here on: the option "fsync".
void use_fsync(const std::string& way);

}  // namespace headrace::test
