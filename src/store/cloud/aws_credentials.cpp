#include "store/cloud/aws_credentials.h"

#include <arpa/inet.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.h"
#include "headrace/error.h"
#include "store/cloud/aws_profile.h"
#include "store/cloud/digest.h"
#include "store/cloud/request.h"
#include "store/cloud/token.h"
#include "store/cloud/xml.h"

namespace headrace {

namespace {

using Fetched = AwsCredentials::Fetched;
using Fetch = std::function<Fetched()>;
using Json = nlohmann::json;

[[noreturn]] void deny(const std::string& why) {
  throw Error(ErrorCode::permission_denied, "AWS credentials: " + why);
}

Fetched fixed(AwsKeys keys) { return {std::make_shared<const AwsKeys>(std::move(keys))}; }

// What the endpoints of containers and instances answer.
Fetched keys_of_json(const std::string& body, const std::string& who) {
  const Json answer = Json::parse(body, nullptr, false);
  const auto text = [&](const char* name) -> std::string {
    if (!answer.is_object()) return "";
    const auto found = answer.find(name);
    return found != answer.end() && found->is_string() ? found->get<std::string>() : "";
  };
  AwsKeys keys{text("AccessKeyId"), text("SecretAccessKey"), text("Token")};
  if (keys.access_key_id.empty() || keys.secret_access_key.empty()) {
    throw Error(ErrorCode::corrupt, who + " answered without keys");
  }
  Fetched fetched = fixed(std::move(keys));
  if (const std::string end = text("Expiration"); !end.empty()) fetched.end = parse_time(end);
  return fetched;
}

// What the Security Token Service answers.
Fetched keys_of_xml(const std::string& body, const std::string& who) {
  AwsKeys keys;
  std::string end;
  XmlReader xml(body);
  while (xml.next()) {
    if (xml.name() == "AccessKeyId") keys.access_key_id = xml.text();
    if (xml.name() == "SecretAccessKey") keys.secret_access_key = xml.text();
    if (xml.name() == "SessionToken") keys.session_token = xml.text();
    if (xml.name() == "Expiration") end = xml.text();
  }
  if (keys.access_key_id.empty() || keys.secret_access_key.empty() || end.empty()) {
    throw Error(ErrorCode::corrupt, who + " answered without keys");
  }
  Fetched fetched = fixed(std::move(keys));
  fetched.end = parse_time(end);
  return fetched;
}

struct StsPlace {
  std::string url;
  std::string region;
};

StsPlace sts_place(const std::string& region, const Surroundings& around) {
  StsPlace place{"", region.empty() ? "us-east-1" : region};
  if (const auto url = around.variable("AWS_ENDPOINT_URL_STS")) {
    place.url = *url;
  } else if (const auto all = around.variable("AWS_ENDPOINT_URL")) {
    place.url = *all;
  } else if (region.empty()) {
    place.url = "https://sts.amazonaws.com";
  } else {
    place.url =
        "https://sts." + region + ".amazonaws.com" + (region.starts_with("cn-") ? ".cn" : "");
  }
  if (!place.url.ends_with('/')) place.url += '/';
  return place;
}

struct Role {
  std::string arn;
  std::string session;
  std::string external_id{};
};

Fetch by_web_identity(const Role& role,
                      const std::string& token_file,
                      const StsPlace& sts,
                      const Surroundings& around) {
  return [=] {
    // Read each time: what put it there replaces it before it ends.
    const std::optional<std::string> token = read_small_file(token_file);
    if (!token) deny("there is no file " + token_file + " with the token of a web identity");
    const std::string body = form_text({{"Action", "AssumeRoleWithWebIdentity"},
                                        {"Version", "2011-06-15"},
                                        {"RoleArn", role.arn},
                                        {"RoleSessionName", role.session},
                                        {"WebIdentityToken", *token}});
    const std::string who = "AWS STS for the role " + role.arn;
    return keys_of_xml(expect_answer(around.client->ask(form_request(sts.url, body)), who), who);
  };
}

Fetch by_role(const Role& role,
              const Fetch& source,
              const StsPlace& sts,
              const Surroundings& around) {
  return [=] {
    const std::shared_ptr<const AwsKeys> keys = source().value;
    FormFields fields{{"Action", "AssumeRole"},
                      {"Version", "2011-06-15"},
                      {"RoleArn", role.arn},
                      {"RoleSessionName", role.session}};
    if (!role.external_id.empty()) fields.emplace_back("ExternalId", role.external_id);
    const std::string body = form_text(fields);
    HttpRequest request = form_request(sts.url, body);
    request.sign =
        [keys, region = sts.region, hash = hex(sha256(body))](HttpRequest& unsigned_one) {
          sign_v4(unsigned_one,
                  *keys,
                  {kAwsSigning, region, "sts"},
                  std::chrono::system_clock::now(),
                  hash,
                  ContentHeader::left_out);
        };
    const std::string who = "AWS STS for the role " + role.arn;
    return keys_of_xml(expect_answer(around.client->ask(std::move(request)), who), who);
  };
}

// Of this machine, or an address that the platform keeps for itself.
bool is_near(std::string_view url) {
  if (!url.starts_with("http://")) return false;
  std::string_view host = url.substr(std::string_view("http://").size());
  host = host.substr(0, host.find_first_of("/?#"));
  if (host.find('@') != host.npos) return false;
  const std::size_t port = host.rfind(':');
  if (port != host.npos && host.find(']', port) == host.npos) host = host.substr(0, port);
  in_addr address{};
  if (::inet_pton(AF_INET, std::string(host).c_str(), &address) == 1) {
    return ntohl(address.s_addr) >> 24 == 127 || host == "169.254.170.2" ||
           host == "169.254.170.23";
  }
  return host == "localhost" || host == "[::1]" || host == "[fd00:ec2::23]";
}

// Of ECS by a path, of EKS by a URL and a token in a file.
std::optional<Fetch> by_container(const Surroundings& around) {
  const auto relative = around.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const auto full = around.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  if (!relative && !full) return std::nullopt;
  const std::string url = relative ? "http://169.254.170.2" + *relative : *full;
  if (!url.starts_with("https://")) {
    // A token in the clear goes to this machine and the platform's own addresses only.
    if (!is_near(url)) {
      deny("AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor of this machine");
    }
  }
  const auto token = around.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const auto token_file = around.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  return [=, client = around.local_client] {
    HttpRequest request;
    request.url = url;
    if (token_file) {
      std::optional<std::string> text = read_small_file(*token_file);
      if (!text) deny("there is no file " + *token_file);
      while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
      request.headers.push_back({"Authorization", *text});
    } else if (token) {
      request.headers.push_back({"Authorization", *token});
    }
    const std::string who = "the container's endpoint of credentials";
    return keys_of_json(expect_answer(client->ask(std::move(request)), who), who);
  };
}

Fetch by_instance(const Surroundings& around) {
  std::string base =
      around.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT")
          .value_or(around.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").value_or("") == "IPv6"
                        ? "http://[fd00:ec2::254]"
                        : "http://169.254.169.254");
  while (base.ends_with('/')) base.pop_back();
  return [base, client = around.local_client] {
    const std::string who = "the instance's metadata service";
    const auto ask = [&](HttpRequest request) {
      const HttpResponse answer = client->ask(std::move(request));
      expect_service(
          answer,
          who,
          "AWS credentials: none were found in options, in the environment "
          "(AWS_ACCESS_KEY_ID), in ~/.aws, at a container's endpoint or an instance's. A "
          "public bucket is read with anon=true");
      return expect_answer(answer, who);
    };
    HttpRequest session;
    session.method = "PUT";
    session.url = base + "/latest/api/token";
    session.headers = {{"x-aws-ec2-metadata-token-ttl-seconds", "300"}};
    const std::string token = ask(std::move(session));
    const auto get = [&](const std::string& path) {
      HttpRequest request;
      request.url = base + path;
      request.headers = {{"x-aws-ec2-metadata-token", token}};
      return ask(std::move(request));
    };
    const std::string roles = "/latest/meta-data/iam/security-credentials/";
    std::string role = get(roles);
    role = role.substr(0, role.find('\n'));
    return keys_of_json(get(roles + uri_encode(role, Slash::encoded)), who);
  };
}

std::string setting(const ProfileSettings& settings, std::string_view name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "" : found->second;
}

// `depth` bounds profiles that name each other.
std::optional<Fetch> by_profile(const std::string& profile,
                                const StsPlace& sts,
                                const Surroundings& around,
                                int depth);

Fetch by_source(const ProfileSettings& settings,
                const std::string& profile,
                const StsPlace& sts,
                const Surroundings& around,
                int depth) {
  const std::string source = setting(settings, "source_profile");
  if (source == profile) {
    // It has keys of its own, to ask for the role with.
    AwsKeys keys{setting(settings, "aws_access_key_id"),
                 setting(settings, "aws_secret_access_key"),
                 setting(settings, "aws_session_token")};
    return [keys] { return fixed(keys); };
  }
  if (!source.empty()) {
    if (depth > 8) deny("profiles name each other as their source_profile");
    const std::optional<Fetch> found = by_profile(source, sts, around, depth + 1);
    if (!found) deny("the source_profile \"" + source + "\" has none");
    return *found;
  }
  const std::string place = setting(settings, "credential_source");
  if (place == "Ec2InstanceMetadata") return by_instance(around);
  if (place == "EcsContainer") {
    if (const std::optional<Fetch> found = by_container(around)) return *found;
    deny("credential_source is EcsContainer, but this is no container of ECS");
  }
  if (place == "Environment") {
    AwsKeys keys{around.variable("AWS_ACCESS_KEY_ID").value_or(""),
                 around.variable("AWS_SECRET_ACCESS_KEY").value_or(""),
                 around.variable("AWS_SESSION_TOKEN").value_or("")};
    return [keys] { return fixed(keys); };
  }
  deny("the profile \"" + profile +
       "\" has a role_arn, but neither source_profile nor a known "
       "credential_source");
}

std::optional<Fetch> by_profile(const std::string& profile,
                                const StsPlace& sts,
                                const Surroundings& around,
                                int depth) {
  const ProfileSettings settings = read_profile(profile, around);
  const std::string session = setting(settings, "role_session_name");
  const Role role{setting(settings, "role_arn"),
                  session.empty() ? "headrace" : session,
                  setting(settings, "external_id")};
  if (!role.arn.empty()) {
    const std::string token_file = setting(settings, "web_identity_token_file");
    if (!token_file.empty()) return by_web_identity(role, token_file, sts, around);
    return by_role(role, by_source(settings, profile, sts, around, depth), sts, around);
  }
  AwsKeys keys{setting(settings, "aws_access_key_id"),
               setting(settings, "aws_secret_access_key"),
               setting(settings, "aws_session_token")};
  if (!keys.access_key_id.empty() && !keys.secret_access_key.empty()) {
    return [keys] { return fixed(keys); };
  }
  for (const char* name : {"credential_process", "sso_session", "sso_start_url", "login_session"}) {
    if (settings.contains(name)) {
      throw Error(ErrorCode::unsupported,
                  "AWS credentials: the profile \"" + profile + "\" has " + name +
                      ", which headrace does not follow. Put them into the environment: eval "
                      "\"$(aws configure export-credentials --profile " +
                      profile + " --format env)\"");
    }
  }
  return std::nullopt;
}

Fetch choose(const AwsCredentialOptions& options, const Surroundings& around) {
  if (options.keys) {
    return [keys = *options.keys] { return fixed(keys); };
  }
  const StsPlace sts = sts_place(options.region, around);
  const std::string profile = profile_name(options.profile, around);
  const bool profile_first = !options.profile.empty();
  if (!profile_first) {
    const auto id = around.variable("AWS_ACCESS_KEY_ID");
    const auto secret = around.variable("AWS_SECRET_ACCESS_KEY");
    if (id && secret) {
      const AwsKeys keys{*id, *secret, around.variable("AWS_SESSION_TOKEN").value_or("")};
      return [keys] { return fixed(keys); };
    }
    const auto token_file = around.variable("AWS_WEB_IDENTITY_TOKEN_FILE");
    const auto arn = around.variable("AWS_ROLE_ARN");
    if (token_file && arn) {
      const Role role{*arn, around.variable("AWS_ROLE_SESSION_NAME").value_or("headrace")};
      return by_web_identity(role, *token_file, sts, around);
    }
  }
  if (std::optional<Fetch> found = by_profile(profile, sts, around, 0)) return *found;
  if (profile_first || profile != "default") {
    if (read_profile(profile, around).empty()) {
      deny("there is no profile \"" + profile + "\" in ~/.aws/credentials or ~/.aws/config");
    }
  }
  if (std::optional<Fetch> found = by_container(around)) return *found;
  if (lower(around.variable("AWS_EC2_METADATA_DISABLED").value_or("")) == "true") {
    deny(
        "none were found in options, in the environment (AWS_ACCESS_KEY_ID), in ~/.aws or at a "
        "container's endpoint; AWS_EC2_METADATA_DISABLED forbids to ask the instance's. A public "
        "bucket is read with anon=true");
  }
  return by_instance(around);
}

}  // namespace

std::shared_ptr<AwsCredentials> make_aws_credentials(const AwsCredentialOptions& options,
                                                     const Surroundings& around) {
  return std::make_shared<AwsCredentials>(choose(options, around));
}

std::optional<std::string> profile_setting(const std::string& profile,
                                           const std::string& name,
                                           const Surroundings& around) {
  const ProfileSettings settings = read_profile(profile_name(profile, around), around);
  const auto found = settings.find(name);
  if (found == settings.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

}  // namespace headrace
