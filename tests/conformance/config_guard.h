#pragma once

#include "headrace/config.h"

namespace headrace::test {

// The configuration comes back at the end.
class ConfigGuard {
 public:
  ConfigGuard() = default;
  ~ConfigGuard() { set_config(before_); }
  ConfigGuard(const ConfigGuard&) = delete;
  ConfigGuard& operator=(const ConfigGuard&) = delete;

 private:
  const Config before_ = config();
};

// However many processors there are.
inline void set_threads(int n) {
  Config changed = config();
  changed.threads = n;
  set_config(changed);
}

}  // namespace headrace::test
