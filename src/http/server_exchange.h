// The server's Exchange: one request on a Connection. Internal.
#pragma once

#include "http/connection.h"

namespace space::http {

class ServerExchange final : public Exchange {
 public:
  ServerExchange(Connection& connection, Head head, Target target);

  const std::string& method() const override { return head_.method; }
  const Target& target() const override { return target_; }
  const Headers& headers() const override { return head_.headers; }
  const Peer& peer() const override { return connection_.peer(); }
  std::optional<std::uint64_t> content_length() const override { return head_.content_length; }
  bool has_body() const override { return head_.framing != Framing::none; }
  Task<std::size_t> read(std::span<std::byte> into) override;
  void set_read_timeout(std::chrono::milliseconds time) override { read_timeout_ = time; }
  Task<> reply(Response response) override;
  Task<> start(int status, Headers headers, std::optional<std::uint64_t> length) override;
  Task<> write(std::span<const std::byte> bytes) override;
  Task<> finish() override;
  bool started() const override { return phase_ != Phase::fresh; }
  void abort() override;
  asio::awaitable<void> disconnected() override;
  Result<Detached> detach() override;
  Task<std::unique_ptr<ByteStream>> upgrade(std::string protocol, Headers headers) override;

  enum class Phase { fresh, started, finished, aborted, detached, upgraded };
  Phase phase() const { return phase_; }
  bool keeps_alive() const { return keep_alive_; }
  const BodyReader& body() const { return body_; }

 private:
  bool body_can_be_drained() const;
  Result<std::string> answer_head(int status, const Headers& headers, std::optional<std::uint64_t> length);
  bool bodyless(int status) const;

  Connection& connection_;
  Head head_;
  Target target_;
  BodyReader body_;
  std::chrono::milliseconds read_timeout_;
  Phase phase_ = Phase::fresh;
  bool keep_alive_ = false;
  bool continue_due_ = false;  // the client waits for 100 Continue
  bool without_body_ = false;  // HEAD, 204, 304
  bool chunked_ = false;
  std::optional<std::uint64_t> left_;  // of a sized answer
  std::string held_head_;              // goes out with the first bytes of a sized answer
};

// Bytes of an unread request body that are read and dropped so that the connection can be kept.
inline constexpr std::uint64_t kDrainLimit = 256 << 10;

}  // namespace space::http
