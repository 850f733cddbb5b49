#pragma once

// The questions to a server: is it there, who does it take us for, what does it give.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/report/place_findings.h"
#include "store/http/open.h"
#include "store/http/protocol.h"

namespace headrace {

class RemoteDoctor {
 public:
  RemoteDoctor(RemoteParts parts, Findings& findings);

  // False: nothing can be read there.
  bool examine();
  // The same where credentials were looked for in vain.
  bool examine_anonymous();
  // Whom to ask on: without credentials where that alone works.
  const std::shared_ptr<ObjectProtocol>& protocol() const { return protocol_; }
  bool lists() const { return lists_; }

 private:
  struct Object {
    std::string key;
    std::uint64_t nbytes = 0;
  };

  HttpResponse ask(HttpRequest request);
  HttpResponse look(ObjectProtocol& protocol, const std::string& key, const Extent& extent);
  void look_at_proxy();
  void look_closer();
  bool prepare();
  bool first_look();
  void refused(const HttpRequest& request, const HttpResponse& response);
  bool try_anonymous();
  void unanswered(const std::exception_ptr& error);
  void unanswered_by_tls(HttpFault fault, const std::string& message);
  void compare_clocks(const HttpResponse& response);
  void look_at_answer(const HttpResponse& response);
  void look_at_list();
  void look_at_ranges();
  void say_how_long();

  const RemoteParts parts_;
  const std::shared_ptr<HttpClient> client_;
  std::shared_ptr<ObjectProtocol> protocol_;
  Findings& findings_;
  bool lists_ = false;
  bool clock_told_ = false;
  std::optional<Object> object_;  // one that there is
  std::vector<std::chrono::steady_clock::duration> times_;
};

}  // namespace headrace
