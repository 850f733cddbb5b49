#pragma once

// What HttpDriver does that a thread waits for: writes, erasures, pages of lists.

#include <span>
#include <string>
#include <string_view>

#include "store/http/protocol.h"

namespace headrace {

// Whole: by one request, or in parts that appear together. `conflict` where the condition does not
// hold. After an error nothing of it is left behind, or the message says that it may be.
void write_object(ObjectProtocol& protocol,
                  HttpClient& client,
                  std::string_view key,
                  std::span<const ConstBytes> parts,
                  const WriteCondition& condition);
// Missing ones count as erased.
void erase_objects(ObjectProtocol& protocol, HttpClient& client, std::span<const std::string> keys);
ListPage list_page(ObjectProtocol& protocol,
                   HttpClient& client,
                   const std::string& prefix,
                   bool delimiter,
                   const std::string& from);

}  // namespace headrace
