#pragma once

// A web server on 127.0.0.1 that misbehaves when told to: a thread a connection, HTTP/1.1.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace headrace::test {

struct ServerRequest {
  std::string method;
  std::string path;   // decoded, without the first slash
  std::string query;  // as it came
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;

  // Without regard to case; "" for none.
  std::string header(std::string_view name) const;
  // Of the query, decoded; "" for none.
  std::string parameter(std::string_view name) const;
};

// What a request gets, faults included.
struct ServerAnswer {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string body{};

  std::chrono::milliseconds delay{0};
  std::optional<std::size_t> cut_at{};         // bytes of the body that are sent; then it hangs up
  bool reset = false;                          // hangs up by RST, in place of the rest or of all
  std::optional<std::uint64_t> says_length{};  // instead of what is true
  bool says_no_length = false;                 // the end of the connection is the end
  bool chunked = false;
  std::chrono::milliseconds trickle{0};  // before each `trickle_nbytes`
  std::size_t trickle_nbytes = 1;
  std::optional<std::chrono::milliseconds> endless{};  // the body again and again, so long between
  std::string raw{};  // not empty: this is sent in place of an answer
};

class HttpServer {
 public:
  using Handler = std::function<ServerAnswer(const ServerRequest&)>;

  explicit HttpServer(Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int requests() const { return requests_; }
  int connections() const { return connections_; }
  // The most that were being answered at a time.
  int most_at_once() const { return most_at_once_; }
  // From then on so long between each 64 KiB of what is sent to it, of which it holds no more.
  void read_slowly(std::chrono::milliseconds between);

 private:
  void accept_all();
  void serve(int fd);
  bool receive(int fd, std::string& buffer, std::size_t nbytes, std::string_view mark) const;
  bool answer(int fd, const ServerRequest& request, const ServerAnswer& answer);
  bool pause(std::chrono::milliseconds time) const;

  const Handler handler_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> over_{false};
  std::atomic<std::chrono::milliseconds> between_reads_{};
  std::atomic<int> requests_{0};
  std::atomic<int> connections_{0};
  std::atomic<int> at_once_{0};
  std::atomic<int> most_at_once_{0};
  std::mutex mutex_;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::thread accepting_;
};

// Objects by key behind such a server: whole, by range, on condition, in parts, in lists. What
// ToyProtocol (toy_protocol.h) speaks. Plain HTTP reads it, too.
class ObjectServer {
 public:
  // Changes what a request is about to get.
  using Fault = std::function<void(const ServerRequest&, ServerAnswer&)>;

  ObjectServer();

  HttpServer& server() { return server_; }
  std::string url() const { return server_.url(); }
  void put(const std::string& key, std::string bytes);
  void erase(const std::string& key);
  void name_write(const std::string& key, const std::string& name);
  std::optional<std::string> get(const std::string& key);
  std::size_t count();
  std::size_t uploads();  // begun, and neither finished nor aborted
  void set_fault(Fault fault);
  void set_page(std::size_t keys) { page_ = keys; }
  static std::string etag(const std::string& bytes);

 private:
  ServerAnswer serve(const ServerRequest& request);
  ServerAnswer read(const ServerRequest& request);
  ServerAnswer write(const ServerRequest& request, std::string bytes);
  ServerAnswer list(const ServerRequest& request);

  std::mutex mutex_;
  std::map<std::string, std::string> objects_;
  std::map<std::string, std::string> write_names_;  // of objects, and of uploads
  std::map<std::string, std::map<int, std::string>> uploads_;
  int next_upload_ = 1;
  std::atomic<std::size_t> page_{1000};
  Fault fault_;
  HttpServer server_;  // last: it ends first
};

std::string decode(std::string_view text);

}  // namespace headrace::test
