// The client's side of one exchange. Internal.
#pragma once

#include "http/body.h"
#include "http/client_pool.h"
#include "http/watchdog.h"

namespace space::http {

class ClientExchange final : public ClientStream {
 public:
  // `payload`: the whole body of a request that is not streamed; it can be sent a second time.
  static Task<std::unique_ptr<ClientExchange>> make(std::shared_ptr<ClientPool> pool, Request request, BodyKind body, std::uint64_t length,
                                                    std::string payload);
  ~ClientExchange() override;

  Task<> write(std::span<const std::byte> bytes) override;
  Task<> finish_request() override;
  Task<Response> head() override;
  std::optional<std::uint64_t> content_length() const override { return answer_.content_length; }
  Task<std::size_t> read(std::span<std::byte> into) override;
  void cancel() override;
  void set_body_timeout(std::chrono::milliseconds time) override { body_timeout_ = time; }
  std::unique_ptr<ByteStream> upgraded() override;

 private:
  class Upgraded;
  ClientExchange(std::shared_ptr<ClientPool> pool, Request request, BodyKind body, std::uint64_t length, std::string payload);
  Result<> compose_head(const Request& request);
  Task<> connect(bool fresh);
  Task<> send(std::span<const asio::const_buffer> parts);
  Task<std::optional<Head>> try_head();  // nullopt: the connection ended before the first byte
  bool may_repeat() const;
  void release_when_done();
  tl::unexpected<Error> io_error(const char* code, const char* message) const;

  std::shared_ptr<ClientPool> pool_;
  std::string method_;
  std::string head_text_;
  std::string payload_;
  BodyKind kind_;
  std::uint64_t left_ = 0;  // of a sized request
  std::chrono::milliseconds body_timeout_;
  std::unique_ptr<ClientConnection> connection_;
  Head answer_;
  BodyReader body_;
  bool head_sent_ = false, request_done_ = false, request_failed_ = false, head_done_ = false;
  bool upgrade_ = false;  // was asked for
  bool reading_ = false;  // while the head is awaited the connection must not be replaced
  bool cancelled_ = false, read_expired_ = false, write_expired_ = false;
  Watchdog read_watch_, write_watch_;
};

}  // namespace space::http
