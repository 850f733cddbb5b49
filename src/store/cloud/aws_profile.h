#pragma once

#include <map>
#include <string>
#include <string_view>

#include "store/cloud/environment.h"

namespace headrace {

using ProfileSettings = std::map<std::string, std::string, std::less<>>;

// "[profile name]" of the config file and "[name]" of that of credentials, the latter counts where
// both have a setting. Empty: there is no such profile.
ProfileSettings read_profile(const std::string& profile, const Surroundings& around);
// The one that is asked for, or AWS_PROFILE's, or "default".
std::string profile_name(const std::string& wanted, const Surroundings& around);

// For the tests: the settings of "[section]" in a file of that kind; nested ones are left out.
ProfileSettings read_section(std::string_view file, std::string_view section);

}  // namespace headrace
