#pragma once

// From a URL to a store of S3, Google Cloud Storage or Azure:
//   s3://bucket/a.zarr   s3a://
//   gs://bucket/a.zarr   gcs://
//   az://container/a.zarr   azure://   abfs(s)://container@account.dfs.core.windows.net/a.zarr
// Keys stand in it as they are: what looks encoded is part of the key, as for all tools of these.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "headrace/store.h"
#include "store/cloud/azure.h"
#include "store/cloud/environment.h"
#include "store/cloud/gcs.h"
#include "store/cloud/s3.h"
#include "store/http/open.h"
#include "store/option_reader.h"

namespace headrace {

class StoreDriver;

// Null: not a scheme of these.
std::shared_ptr<StoreDriver> open_cloud(std::string_view scheme,
                                        std::string_view place,
                                        StoreMode mode,
                                        OptionReader& options);

std::optional<RemoteParts> cloud_parts(std::string_view scheme,
                                       std::string_view place,
                                       OptionReader& options,
                                       const HttpAdjustment& adjust = {});

// "bucket/a/b" behind the scheme.
struct CloudPlace {
  std::string bucket;
  std::string prefix;
  std::string account{};  // of container@account.dfs.core.windows.net
  std::string host{};     // "account.blob.core.windows.net"
};
CloudPlace parse_cloud_place(std::string_view scheme, std::string_view place);

// What options, by all the names that users of fsspec and obstore know, and what is around say.
S3Options take_s3_options(const CloudPlace& place,
                          OptionReader& options,
                          const Surroundings& around);
GcsOptions take_gcs_options(const CloudPlace& place,
                            OptionReader& options,
                            const Surroundings& around);
AzureOptions take_azure_options(const CloudPlace& place,
                                OptionReader& options,
                                const Surroundings& around);

}  // namespace headrace
