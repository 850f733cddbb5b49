#pragma once

// Keys for S3, from where AWS's own tools take them, in their order: options, the environment, a
// role by a web identity, a profile of ~/.aws, the container's endpoint, the instance's (IMDSv2).
// https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html

#include <memory>
#include <optional>
#include <string>

#include "store/cloud/environment.h"
#include "store/cloud/renewed.h"
#include "store/cloud/sigv4.h"

namespace headrace {

using AwsCredentials = Renewed<AwsKeys>;

struct AwsCredentialOptions {
  std::optional<AwsKeys> keys{};
  std::string profile{};  // empty: AWS_PROFILE, or "default"
  std::string region{};   // for AWS's service that gives out roles; empty: its global one
};

// What is wrong with the options and the files is thrown here, what is wrong with a service by
// get().
std::shared_ptr<AwsCredentials> make_aws_credentials(const AwsCredentialOptions& options,
                                                     const Surroundings& around);

// A setting of the profile in ~/.aws/config ("region", "endpoint_url"); nothing: there is none.
std::optional<std::string> profile_setting(const std::string& profile,
                                           const std::string& name,
                                           const Surroundings& around);

}  // namespace headrace
