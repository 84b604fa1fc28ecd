#include "http/server_exchange.h"

#include <array>
#include <boost/asio/error.hpp>
#include <cstring>
#include <fmt/format.h>

#include "base/encoding.h"

namespace space::http {
namespace {

constexpr std::size_t kAheadLimit = 64 << 10;  // read beyond the current request while waiting for the client to go

auto client_gone(const char* doing) {
  return fail(ErrorKind::cancelled, "client_gone", fmt::format("the client closed the connection while {}", doing));
}
auto our_mistake(const char* what) { return fail(ErrorKind::internal, "bad_exchange_use", what); }

}  // namespace

ServerExchange::ServerExchange(Connection& connection, Head head, Target target)
    : connection_(connection),
      head_(std::move(head)),
      target_(std::move(target)),
      body_(head_),
      read_timeout_(connection.core().options.body_timeout),
      continue_due_(head_.expects_continue) {}

Task<std::size_t> ServerExchange::read(std::span<std::byte> into) {
  if (body_.done() || into.empty()) co_return 0U;
  if (phase_ == Phase::aborted || phase_ == Phase::detached) co_return our_mistake("read after the end of the exchange");
  if (continue_due_) {
    continue_due_ = false;
    if (phase_ == Phase::fresh) {
      const std::array parts{asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n"))};
      CO_TRY_VOID(co_await connection_.send(parts));
    }
  }
  bool timed_out = false;
  const BodyReader::Piece piece = co_await connection_.read_body(body_, into, read_timeout_, timed_out);
  if (timed_out)
    co_return fail(ErrorKind::deadline_exceeded, "request_timeout", "no more of the request body came in time",
                   "send the body without long pauses");
  switch (piece.fault) {
    case BodyReader::Piece::Fault::none:
      co_return piece.bytes;
    case BodyReader::Piece::Fault::malformed:
      co_return fail(ErrorKind::invalid_argument, "bad_message", "the chunked request body is malformed",
                     "send HTTP/1.1 as RFC 9112 defines it");
    case BodyReader::Piece::Fault::cut_off:
    case BodyReader::Piece::Fault::failed:
      break;
  }
  co_return client_gone("sending the request body");
}

bool ServerExchange::bodyless(int status) const { return head_.method == "HEAD" || status == 204 || status == 304; }

bool ServerExchange::body_can_be_drained() const {
  return body_.done() || (!continue_due_ && body_.framing() == Framing::sized && body_.left() <= kDrainLimit);
}

Result<std::string> ServerExchange::answer_head(int status, const Headers& headers, std::optional<std::uint64_t> length) {
  if (status < 200 || status > 599) return our_mistake("an answer has a status from 200 to 599");
  ServerCore& core = connection_.core();
  without_body_ = bodyless(status);
  // HTTP/1.0 knows no chunks: the end of the connection ends the body.
  chunked_ = !length && !without_body_ && head_.minor > 0;
  keep_alive_ = head_.keep_alive && !core.stopping && body_can_be_drained() && (length || without_body_ || chunked_);

  std::string text;
  text.reserve(512);
  fmt::format_to(std::back_inserter(text), "HTTP/1.1 {} {}\r\nServer: {}\r\nDate: {}\r\n", status, reason_phrase(status),
                 core.options.server_name, core.date());
  for (const auto& [name, value] : headers.fields())
    if (!is_hop_by_hop(name)) TRY_VOID(append_field(text, name, value));
  if (length && status != 204) fmt::format_to(std::back_inserter(text), "Content-Length: {}\r\n", *length);
  if (chunked_) text += "Transfer-Encoding: chunked\r\n";
  if (!keep_alive_) {
    text += "Connection: close\r\n";
  } else if (head_.minor == 0) {
    text += "Connection: keep-alive\r\n";
  }
  text += "\r\n";
  return text;
}

Task<> ServerExchange::reply(Response response) {
  if (phase_ != Phase::fresh) co_return our_mistake("a second answer to one request");
  CO_TRY(std::string text, answer_head(response.status, response.headers, response.body.size()));
  phase_ = Phase::started;
  std::array<asio::const_buffer, 2> parts{
      asio::buffer(text), without_body_ ? asio::const_buffer() : asio::const_buffer(response.body.data(), response.body.size())};
  if (parts[1].size() <= (4 << 10)) {
    text.append(static_cast<const char*>(parts[1].data()), parts[1].size());
    parts = {asio::buffer(text), asio::const_buffer()};
  }
  CO_TRY_VOID(co_await connection_.send(parts));
  phase_ = Phase::finished;
  co_return Result<>();
}

Task<> ServerExchange::start(int status, Headers headers, std::optional<std::uint64_t> length) {
  if (phase_ != Phase::fresh) co_return our_mistake("a second answer to one request");
  CO_TRY(held_head_, answer_head(status, headers, length));
  phase_ = Phase::started;
  left_ = without_body_ ? std::nullopt : length;
  // The bytes of a sized answer follow at once, so its head waits for them; a stream's first bytes may be far away.
  if (left_.value_or(0) > 0) co_return Result<>();
  const std::string text = std::exchange(held_head_, {});
  const std::array parts{asio::buffer(text)};
  co_return co_await connection_.send(parts);
}

Task<> ServerExchange::write(std::span<const std::byte> bytes) {
  if (phase_ != Phase::started) co_return our_mistake("write outside of start and finish");
  if (bytes.empty() || without_body_) co_return Result<>();
  const std::string head = std::exchange(held_head_, {});
  const asio::const_buffer data(bytes.data(), bytes.size());
  if (chunked_) {
    std::array<char, 20> size;
    const auto end = fmt::format_to(size.data(), "{:x}\r\n", bytes.size());
    const std::array parts{asio::const_buffer(size.data(), static_cast<std::size_t>(end - size.data())), data,
                           asio::buffer(std::string_view("\r\n"))};
    co_return co_await connection_.send(parts);
  }
  if (left_) {
    if (bytes.size() > *left_) co_return our_mistake("more bytes than the length that was announced");
    *left_ -= bytes.size();
  }
  const std::array parts{asio::buffer(head), data};
  co_return co_await connection_.send(parts);
}

Task<> ServerExchange::finish() {
  if (phase_ != Phase::started) co_return our_mistake("finish without start");
  if (left_.value_or(0) > 0) co_return our_mistake("fewer bytes than the length that was announced");
  if (chunked_) {
    const std::array parts{asio::buffer(std::string_view("0\r\n\r\n"))};
    CO_TRY_VOID(co_await connection_.send(parts));
  }
  phase_ = Phase::finished;
  co_return Result<>();
}

void ServerExchange::abort() {
  phase_ = Phase::aborted;
  connection_.reset();
}

asio::awaitable<void> ServerExchange::disconnected() {
  // Reading on is the one way that tells for plain sockets and TLS alike. What comes (the next request of a client that does
  // not wait) stays in the buffer; when that is full only a reset is seen.
  while (connection_.in().size() < kAheadLimit) {
    const Transfer transfer = co_await connection_.receive_ahead();
    if (!transfer.error) continue;
    const bool may_read_on = transfer.error == asio::error::eof && connection_.stream().is_plain() && wanted_upgrade(*this).empty();
    if (may_read_on) co_await connection_.no_longer_served();
    co_return;
  }
  co_await connection_.broken_off();
}

Result<Exchange::Detached> ServerExchange::detach() {
  if (phase_ != Phase::fresh) return our_mistake("detach after the answer started");
  if (!connection_.stream().is_plain())
    return fail(ErrorKind::unsupported, "upgrade_over_tls", "this upgrade is not possible over TLS here");
  Detached detached;
  detached.surplus = connection_.in().view();
  boost::system::error_code error;
  detached.socket = Fd(connection_.stream().socket().release(error));
  if (error) return fail_errno(error.value(), "release a socket");
  phase_ = Phase::detached;
  return detached;
}

namespace {

class UpgradedConnection final : public ByteStream {
 public:
  explicit UpgradedConnection(Connection& connection) : connection_(connection) {}

  Task<std::size_t> read(std::span<std::byte> into) override {
    InBuffer& in = connection_.in();
    if (!in.empty()) {  // what came behind the request's head
      const std::size_t n = std::min(into.size(), in.size());
      std::memcpy(into.data(), in.view().data(), n);
      in.consume(n);
      co_return n;
    }
    const std::array room{asio::mutable_buffer(into.data(), into.size())};
    const Transfer transfer = co_await connection_.stream().read_some(room);
    if (transfer.error == asio::error::eof) co_return 0U;
    if (transfer.error) co_return client_gone("the protocol it switched to was spoken");
    co_return transfer.bytes;
  }
  Task<> write(std::span<const std::byte> bytes) override {
    const std::array parts{asio::const_buffer(bytes.data(), bytes.size())};
    co_return co_await connection_.send(parts);
  }
  asio::awaitable<void> close_write() override { return connection_.stream().close_write(); }
  void cut() override { connection_.reset(); }

 private:
  Connection& connection_;
};

}  // namespace

Task<std::unique_ptr<ByteStream>> ServerExchange::upgrade(std::string protocol, Headers headers) {
  if (phase_ != Phase::fresh || has_body()) co_return our_mistake("an upgrade after the answer started, or of a request with a body");
  std::string text = fmt::format("HTTP/1.1 101 {}\r\nConnection: Upgrade\r\n", reason_phrase(101));
  CO_TRY_VOID(append_field(text, "Upgrade", protocol));
  for (const auto& [name, value] : headers.fields())
    if (!is_hop_by_hop(name)) CO_TRY_VOID(append_field(text, name, value));
  text += "\r\n";
  phase_ = Phase::upgraded;
  const std::array parts{asio::const_buffer(text.data(), text.size())};
  CO_TRY_VOID(co_await connection_.send(parts));
  std::unique_ptr<ByteStream> stream = std::make_unique<UpgradedConnection>(connection_);
  co_return stream;
}

}  // namespace space::http
