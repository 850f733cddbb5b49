#pragma once

// Tokens for Google Cloud Storage, from where Google's own tools take them: a document in JSON (of
// a service account, or what `gcloud auth application-default login` leaves), or the metadata
// server of the machine. https://google.aip.dev/auth/4110

#include <memory>
#include <string>

#include "store/cloud/environment.h"
#include "store/cloud/token.h"

namespace headrace {

// Of the document that holds them; `what` names it for messages.
std::shared_ptr<Tokens> gcs_tokens_of(const std::string& document,
                                      const std::string& what,
                                      const Surroundings& around);
// The application's default credentials: GOOGLE_APPLICATION_CREDENTIALS, gcloud's file, the
// metadata server.
std::shared_ptr<Tokens> gcs_default_tokens(const Surroundings& around);
std::shared_ptr<Tokens> gcs_metadata_tokens(const Surroundings& around);

// For the tests: what a service account asks for a token with.
std::string service_account_assertion(const std::string& email,
                                      const std::string& private_key_pem,
                                      const std::string& key_id,
                                      const std::string& audience,
                                      std::chrono::system_clock::time_point now);

}  // namespace headrace
