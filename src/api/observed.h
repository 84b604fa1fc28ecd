// An exchange seen from between server and handler: notes the status for the log, holds a short answer back until it is kept for
// Idempotency-Key, digests the body as it is read, and adds Request-Id to every answer. Belongs to one request.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/digest.h"
#include "http/server.h"

namespace space::api {

class Observed : public http::Exchange {
 public:
  explicit Observed(http::Exchange& inner, std::string request_id);

  // The handler reads this instead of what the client sends: it was read before.
  void preload(std::string body);
  // The whole answer is held back and shown to `keeper` before the client gets it. An answer over `limit` is sent on as it comes
  // and not shown.
  using Keeper = std::function<Task<>(int status, std::string body)>;
  void hold_answer(std::size_t limit, Keeper keeper);

  int status() const { return status_; }  // 0: not answered
  std::string body_digest();              // hex, of what was read; once
  const std::string& request_id() const { return request_id_; }
  std::uint64_t bytes_in() const { return bytes_in_; }
  std::uint64_t bytes_out() const { return bytes_out_; }

  const std::string& method() const override { return inner_.method(); }
  const http::Target& target() const override { return inner_.target(); }
  const http::Headers& headers() const override { return inner_.headers(); }
  const http::Peer& peer() const override { return inner_.peer(); }
  std::optional<std::uint64_t> content_length() const override;
  bool has_body() const override;
  Task<std::size_t> read(std::span<std::byte> into) override;
  Task<> reply(http::Response response) override;
  Task<> start(int status, http::Headers headers, std::optional<std::uint64_t> length) override;
  Task<> write(std::span<const std::byte> bytes) override;
  Task<> finish() override;
  bool started() const override { return held_ || inner_.started(); }
  void abort() override { inner_.abort(); }
  void set_read_timeout(std::chrono::milliseconds time) override { inner_.set_read_timeout(time); }
  // Of a held answer never: whoever lost the connection repeats the request, and shall find what the first one did.
  asio::awaitable<void> disconnected() override;
  Result<Detached> detach() override { return inner_.detach(); }
  Task<std::unique_ptr<http::ByteStream>> upgrade(std::string protocol, http::Headers headers) override;

 private:
  Task<> send_held();
  http::Exchange& inner_;
  std::string request_id_;
  int status_ = 0;
  std::optional<std::string> preloaded_;
  std::size_t preload_read_ = 0;
  std::size_t hold_limit_ = 0;
  Keeper keeper_;
  std::optional<http::Response> held_;
  std::optional<std::uint64_t> held_length_;
  Sha256Stream digest_;
  std::uint64_t bytes_in_ = 0, bytes_out_ = 0;
};

}  // namespace space::api
