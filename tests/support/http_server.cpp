#include "support/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <stdexcept>

#include "store/http/content_range.h"
#include "store/http/plain.h"

namespace headrace::test {

namespace {

int from_hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return (c | 0x20) - 'a' + 10;
}

// False: the peer is gone.
bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace

std::string decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(from_hex(text[i + 1]) * 16 + from_hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string ServerRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (same_name(key, name)) return value;
  }
  return "";
}

std::string ServerRequest::parameter(std::string_view name) const {
  for (std::string_view rest = query; !rest.empty();) {
    const std::size_t end = std::min(rest.find('&'), rest.size());
    const std::string_view pair = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    if (pair.substr(0, equals) == name) {
      return decode(pair.substr(std::min(equals + 1, pair.size())));
    }
  }
  return "";
}

HttpServer::HttpServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t nbytes = sizeof address;
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), nbytes) != 0 ||
      ::listen(listener_, 1024) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &nbytes) != 0) {
    throw std::runtime_error("no socket for a test's server");
  }
  port_ = ntohs(address.sin_port);
  accepting_ = std::thread([this] { accept_all(); });
}

HttpServer::~HttpServer() {
  over_ = true;
  ::shutdown(listener_, SHUT_RDWR);
  accepting_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
  ::close(listener_);
}

void HttpServer::accept_all() {
  while (!over_) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ++connections_;
    const std::lock_guard lock(mutex_);
    open_.push_back(fd);
    threads_.emplace_back([this, fd] { serve(fd); });
  }
}

bool HttpServer::pause(std::chrono::milliseconds time) const {
  const auto until = std::chrono::steady_clock::now() + time;
  while (!over_ && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::min(time, std::chrono::milliseconds(5)));
  }
  return !over_;
}

void HttpServer::read_slowly(std::chrono::milliseconds between) {
  const int nbytes = 65536;
  ::setsockopt(listener_, SOL_SOCKET, SO_RCVBUF, &nbytes, sizeof nbytes);
  between_reads_ = between;
}

// Adds to `buffer` until it has `nbytes`, or holds `mark` where that is not empty.
bool HttpServer::receive(int fd,
                         std::string& buffer,
                         std::size_t nbytes,
                         std::string_view mark) const {
  while (mark.empty() ? buffer.size() < nbytes : buffer.find(mark) == buffer.npos) {
    char part[65536];
    if (!pause(between_reads_)) return false;
    const ssize_t n = ::recv(fd, part, sizeof part, 0);
    if (n <= 0) return false;
    buffer.append(part, static_cast<std::size_t>(n));
  }
  return true;
}

void HttpServer::serve(int fd) {
  std::string buffer;
  while (!over_ && receive(fd, buffer, 0, "\r\n\r\n")) {
    ServerRequest request;
    const std::size_t end = buffer.find("\r\n\r\n");
    std::string_view head = std::string_view(buffer).substr(0, end);
    const std::string_view first = head.substr(0, head.find("\r\n"));
    head.remove_prefix(std::min(first.size() + 2, head.size()));
    request.method = first.substr(0, first.find(' '));
    std::string_view target = first.substr(request.method.size() + 1);
    target = target.substr(0, target.find(' '));
    const std::size_t question = std::min(target.find('?'), target.size());
    request.path = decode(target.substr(1, question - 1));
    request.query = target.substr(std::min(question + 1, target.size()));
    while (!head.empty()) {
      const std::string_view line = head.substr(0, head.find("\r\n"));
      head.remove_prefix(std::min(line.size() + 2, head.size()));
      const std::size_t colon = line.find(':');
      if (colon == line.npos) continue;
      std::string_view value = line.substr(colon + 1);
      while (value.starts_with(' ')) value.remove_prefix(1);
      request.headers.emplace_back(line.substr(0, colon), value);
    }
    buffer.erase(0, end + 4);
    const std::string length = request.header("Content-Length");
    const std::size_t nbytes = length.empty() ? 0 : std::stoull(length);
    if (!receive(fd, buffer, nbytes, "")) break;
    request.body = buffer.substr(0, nbytes);
    buffer.erase(0, nbytes);

    ++requests_;
    const int now = ++at_once_;
    int most = most_at_once_;
    while (most < now && !most_at_once_.compare_exchange_weak(most, now)) {
    }
    const bool stays = answer(fd, request, handler_(request));
    --at_once_;
    if (!stays) break;
  }
  const std::lock_guard lock(mutex_);
  std::erase(open_, fd);
  ::close(fd);
}

bool HttpServer::answer(int fd, const ServerRequest& request, const ServerAnswer& answer) {
  if (!pause(answer.delay)) return false;
  const auto reset = [fd] {
    const linger hard{1, 0};  // close() then sends RST
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    return false;
  };
  if (answer.reset && !answer.cut_at) return reset();
  if (!answer.raw.empty()) {
    send_all(fd, answer.raw);
    return false;
  }
  std::string head = "HTTP/1.1 " + std::to_string(answer.status) + " Words\r\n";
  bool has_length = false;
  for (const auto& [name, value] : answer.headers) {
    head.append(name).append(": ").append(value).append("\r\n");
    has_length |= same_name(name, "Content-Length");
  }
  const bool has_body = request.method != "HEAD" && answer.status != 204 && answer.status != 304;
  if (answer.chunked && has_body) {
    head += "Transfer-Encoding: chunked\r\n";
  } else if (!answer.says_no_length && !has_length) {
    head += "Content-Length: " + std::to_string(answer.says_length.value_or(answer.body.size())) +
            "\r\n";
  }
  head += "\r\n";
  if (!send_all(fd, head)) return false;
  if (!has_body) return true;
  std::string_view body = answer.body;
  if (answer.endless) {
    while (send_all(fd, body) && pause(*answer.endless)) {
    }
    return false;
  }
  const bool cut = answer.cut_at && *answer.cut_at < body.size();
  if (cut) body = body.substr(0, *answer.cut_at);
  if (answer.trickle.count() > 0) {
    for (std::size_t i = 0; i < body.size(); i += answer.trickle_nbytes) {
      if (!pause(answer.trickle) || !send_all(fd, body.substr(i, answer.trickle_nbytes)))
        return false;
    }
  } else if (answer.chunked) {
    for (std::string_view rest = body; !rest.empty();) {
      const std::string_view part = rest.substr(0, 5000);
      rest.remove_prefix(part.size());
      char size[32];
      std::snprintf(size, sizeof size, "%zx\r\n", part.size());
      if (!send_all(fd, size + std::string(part) + "\r\n")) return false;
    }
    if (!cut && !send_all(fd, "0\r\n\r\n")) return false;
  } else if (!send_all(fd, body)) {
    return false;
  }
  if (cut && answer.reset) return reset();
  return !cut && !answer.says_no_length &&
         (!answer.says_length || *answer.says_length == body.size());
}

ObjectServer::ObjectServer() : server_([this](const ServerRequest& r) { return serve(r); }) {}

std::string ObjectServer::etag(const std::string& bytes) {
  return "\"" + std::to_string(std::hash<std::string>()(bytes)) + "\"";
}

void ObjectServer::put(const std::string& key, std::string bytes) {
  const std::lock_guard lock(mutex_);
  objects_[key] = std::move(bytes);
  write_names_.erase(key);
}

void ObjectServer::erase(const std::string& key) {
  const std::lock_guard lock(mutex_);
  objects_.erase(key);
}

void ObjectServer::name_write(const std::string& key, const std::string& name) {
  const std::lock_guard lock(mutex_);
  write_names_[key] = name;
}

std::optional<std::string> ObjectServer::get(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto at = objects_.find(key);
  if (at == objects_.end()) return std::nullopt;
  return at->second;
}

std::size_t ObjectServer::count() {
  const std::lock_guard lock(mutex_);
  return objects_.size();
}

std::size_t ObjectServer::uploads() {
  const std::lock_guard lock(mutex_);
  return uploads_.size();
}

void ObjectServer::set_fault(Fault fault) {
  const std::lock_guard lock(mutex_);
  fault_ = std::move(fault);
}

ServerAnswer ObjectServer::serve(const ServerRequest& request) {
  ServerAnswer answer;
  Fault fault;
  {
    const std::lock_guard lock(mutex_);
    const std::string upload = request.parameter("upload");
    if (request.method == "GET" && request.path.empty()) {
      answer = list(request);
    } else if (request.method == "GET" || request.method == "HEAD") {
      answer = read(request);
    } else if (request.method == "PUT" && !upload.empty()) {
      // A part whose sender has gone may be heard of behind the upload's end.
      const auto at = uploads_.find(upload);
      if (at == uploads_.end()) {
        answer.status = 404;
      } else {
        at->second[std::atoi(request.parameter("part").c_str())] = request.body;
      }
      answer.headers.emplace_back("ETag", etag(request.body));
    } else if (request.method == "PUT") {
      answer = write(request, request.body);
    } else if (request.method == "POST" && upload.empty()) {
      answer.body = "u" + std::to_string(next_upload_++);
      uploads_[answer.body];
      write_names_[answer.body] = request.header("X-Write");
    } else if (request.method == "POST") {
      const auto at = uploads_.find(upload);
      if (at == uploads_.end()) {
        answer.status = 404;
      } else {
        std::string bytes;
        std::string names;
        for (const auto& [number, part] : at->second) {
          bytes += part;
          names += etag(part) + "\n";
        }
        if (names != request.body) {
          answer.status = 400;
        } else {
          answer = write(request, std::move(bytes));
          if (answer.status == 200) {
            write_names_[request.path] = write_names_[upload];
            uploads_.erase(at);
          }
        }
      }
    } else if (request.method == "DELETE" && !upload.empty()) {
      answer.status = uploads_.erase(upload) > 0 ? 204 : 404;
    } else if (request.method == "DELETE") {
      const std::string wanted = request.header("If-Match");
      const auto at = objects_.find(request.path);
      const bool fails = !wanted.empty() && at != objects_.end() && etag(at->second) != wanted;
      answer.status = fails ? 412 : objects_.erase(request.path) > 0 ? 204 : 404;
    } else {
      answer.status = 405;
    }
    fault = fault_;
  }
  if (fault) fault(request, answer);
  return answer;
}

ServerAnswer ObjectServer::read(const ServerRequest& request) {
  ServerAnswer answer;
  const auto at = objects_.find(request.path);
  if (at == objects_.end()) {
    answer.status = 404;
    answer.body = "no such object";
    return answer;
  }
  const std::string& bytes = at->second;
  const std::string version = etag(bytes);
  answer.headers.emplace_back("ETag", version);
  const std::string wanted = request.header("If-Match");
  if (!wanted.empty() && wanted != version) {
    answer.status = 412;
    return answer;
  }
  const auto name = write_names_.find(request.path);
  if (name != write_names_.end()) answer.headers.emplace_back("X-Write", name->second);
  if (request.method == "HEAD") {
    answer.headers.emplace_back("Content-Length", std::to_string(bytes.size()));
    return answer;
  }
  const std::string range = request.header("Range");
  if (!range.starts_with("bytes=")) {
    answer.body = bytes;
    return answer;
  }
  const std::size_t dash = range.find('-');
  const std::string from = range.substr(6, dash - 6);
  const std::string to = range.substr(dash + 1);
  std::uint64_t begin = 0;
  std::uint64_t end = bytes.size();
  if (from.empty()) {
    begin = end - std::min<std::uint64_t>(end, std::stoull(to));
  } else {
    begin = std::stoull(from);
    if (!to.empty()) end = std::min<std::uint64_t>(end, std::stoull(to) + 1);
  }
  if (begin >= end) {
    answer.status = 416;
    answer.headers.emplace_back("Content-Range", "bytes */" + std::to_string(bytes.size()));
    return answer;
  }
  answer.status = 206;
  answer.headers.emplace_back("Content-Range",
                              "bytes " + std::to_string(begin) + "-" + std::to_string(end - 1) +
                                  "/" + std::to_string(bytes.size()));
  answer.body = bytes.substr(begin, end - begin);
  return answer;
}

ServerAnswer ObjectServer::write(const ServerRequest& request, std::string bytes) {
  ServerAnswer answer;
  const auto at = objects_.find(request.path);
  const std::string wanted = request.header("If-Match");
  const bool fails = (request.header("If-None-Match") == "*" && at != objects_.end()) ||
                     (!wanted.empty() && (at == objects_.end() || etag(at->second) != wanted));
  if (fails) {
    answer.status = 412;
    return answer;
  }
  answer.headers.emplace_back("ETag", etag(bytes));
  objects_[request.path] = std::move(bytes);
  write_names_[request.path] = request.header("X-Write");
  return answer;
}

// Lines "object KEY SIZE", "prefix KEY" and "next KEY", keys encoded.
ServerAnswer ObjectServer::list(const ServerRequest& request) {
  ServerAnswer answer;
  const std::string prefix = request.parameter("prefix");
  const std::string from = request.parameter("from");
  const bool delimiter = request.parameter("delimiter") == "1";
  std::set<std::string> prefixes;
  std::size_t named = 0;
  for (auto at = objects_.lower_bound(std::max(prefix, from));
       at != objects_.end() && at->first.starts_with(prefix);
       ++at) {
    if (named == page_) {
      answer.body += "next " + percent_encode_key(at->first) + "\n";
      break;
    }
    const std::size_t slash = at->first.find('/', prefix.size());
    if (delimiter && slash != std::string::npos) {
      const std::string below = at->first.substr(0, slash + 1);
      if (!prefixes.insert(below).second) continue;
      answer.body += "prefix " + percent_encode_key(below) + "\n";
    } else {
      answer.body += "object " + percent_encode_key(at->first) + " " +
                     std::to_string(at->second.size()) + "\n";
    }
    ++named;
  }
  return answer;
}

}  // namespace headrace::test
