#include "http/client_exchange.h"

#include <array>
#include <cstring>
#include <boost/asio/error.hpp>
#include <fmt/format.h>

namespace space::http {
namespace {

constexpr std::size_t kAnswerRoom = 4 << 10;
constexpr std::size_t kMaxFields = 200;
constexpr int kMaxInterim = 16;  // 1xx answers before the real one

bool is_idempotent(std::string_view method) {  // RFC 9110, section 9.2.2
  return method == "GET" || method == "HEAD" || method == "PUT" || method == "DELETE" || method == "OPTIONS";
}

auto our_mistake(const char* what) { return fail(ErrorKind::internal, "bad_stream_use", what); }

}  // namespace

ClientExchange::ClientExchange(std::shared_ptr<ClientPool> pool, Request request, BodyKind body, std::uint64_t length, std::string payload)
    : pool_(std::move(pool)),
      method_(request.method),
      payload_(std::move(payload)),
      kind_(body),
      left_(length),
      body_timeout_(pool_->options.body_timeout),
      read_watch_(pool_->executor,
                  [this] {
                    read_expired_ = true;
                    if (connection_) connection_->stream->reset();
                  }),
      write_watch_(pool_->executor, [this] {
        write_expired_ = true;
        if (connection_) connection_->stream->reset();
      }) {}

// A server takes a tidy end for a half-close and answers on: what is given up is said by a reset.
ClientExchange::~ClientExchange() {
  const bool switched = head_done_ && answer_.status == 101;  // what was written may still be under way
  if (connection_ && !switched) connection_->stream->reset();
}

Task<std::unique_ptr<ClientExchange>> ClientExchange::make(std::shared_ptr<ClientPool> pool, Request request, BodyKind body,
                                                           std::uint64_t length, std::string payload) {
  std::unique_ptr<ClientExchange> exchange(new ClientExchange(std::move(pool), request, body, length, std::move(payload)));
  CO_TRY_VOID(exchange->compose_head(request));
  CO_TRY_VOID(co_await exchange->connect(false));
  co_return exchange;
}

Result<> ClientExchange::compose_head(const Request& request) {
  TRY_VOID(check_raw_target(request.target));  // no spaces or line breaks get into the request line
  std::string text;
  text.reserve(512);
  fmt::format_to(std::back_inserter(text), "{} {} HTTP/1.1\r\n", request.method, request.target);
  if (!request.headers.has("Host")) TRY_VOID(append_field(text, "Host", pool_->options.host));
  for (const auto& [name, value] : request.headers.fields())
    if (!is_hop_by_hop(name)) TRY_VOID(append_field(text, name, value));
  upgrade_ = !request.upgrade.empty();
  if (upgrade_) {
    text += "Connection: Upgrade\r\n";
    TRY_VOID(append_field(text, "Upgrade", request.upgrade));
  }
  if (kind_ == BodyKind::chunked)
    text += "Transfer-Encoding: chunked\r\n";
  else if (kind_ == BodyKind::sized || request.method == "POST" || request.method == "PUT" || request.method == "PATCH")
    fmt::format_to(std::back_inserter(text), "Content-Length: {}\r\n", kind_ == BodyKind::sized ? left_ : 0);
  text += "\r\n";
  head_text_ = std::move(text);
  return {};
}

Task<> ClientExchange::connect(bool fresh) {
  connection_.reset();
  CO_TRY(auto connection, co_await pool_->acquire(fresh));
  connection_ = std::move(connection);
  co_return Result<>();
}

tl::unexpected<Error> ClientExchange::io_error(const char* code, const char* message) const {
  if (cancelled_) return fail(ErrorKind::cancelled, "cancelled", "the request was cancelled");
  if (read_expired_) return fail(ErrorKind::deadline_exceeded, "answer_timeout", "the other end did not answer in time", "try again later");
  if (write_expired_)
    return fail(ErrorKind::deadline_exceeded, "request_stalled", "the other end took no bytes for too long", "try again later");
  return fail(ErrorKind::unavailable, code, message, "try again; see the other end's log when it happens again");
}

Task<> ClientExchange::send(std::span<const asio::const_buffer> parts) {
  if (cancelled_ || request_failed_) co_return io_error("connection_lost", "the connection ended while the request was sent");
  request_failed_ = true;  // also when this coroutine is abandoned in the middle
  write_watch_.set(body_timeout_);
  const Transfer transfer = co_await connection_->stream->write_all(parts);
  write_watch_.clear();
  if (transfer.error && transfer.bytes == 0 && connection_->reused && !head_sent_ && !reading_ && !cancelled_ && !write_expired_) {
    // A kept connection that the server had closed: it has seen nothing of this request.
    CO_TRY_VOID(co_await connect(true));
    request_failed_ = false;
    co_return co_await send(parts);
  }
  if (transfer.error) {
    // The other end may have answered before it closed; head() finds out, but does not wait for ever.
    read_watch_.set(pool_->options.head_timeout);
    co_return io_error("connection_lost", "the connection ended while the request was sent");
  }
  request_failed_ = false;
  head_sent_ = true;
  co_return Result<>();
}

Task<> ClientExchange::write(std::span<const std::byte> bytes) {
  if (kind_ == BodyKind::none || request_done_) co_return our_mistake("write without an open request body");
  if (bytes.empty()) co_return Result<>();
  const asio::const_buffer head = head_sent_ ? asio::const_buffer() : asio::buffer(head_text_);
  const asio::const_buffer data(bytes.data(), bytes.size());
  if (kind_ == BodyKind::sized) {
    if (bytes.size() > left_) co_return our_mistake("more bytes than the length that was announced");
    left_ -= bytes.size();
    const std::array parts{head, data};
    co_return co_await send(parts);
  }
  std::array<char, 20> size;
  const auto end = fmt::format_to(size.data(), "{:x}\r\n", bytes.size());
  const std::array parts{head, asio::const_buffer(size.data(), static_cast<std::size_t>(end - size.data())), data,
                         asio::buffer(std::string_view("\r\n"))};
  co_return co_await send(parts);
}

Task<> ClientExchange::finish_request() {
  if (request_done_) co_return Result<>();
  if (kind_ == BodyKind::sized && left_ != payload_.size()) co_return our_mistake("fewer bytes than the length that was announced");
  const std::array<asio::const_buffer, 3> parts{
      head_sent_ ? asio::const_buffer() : asio::buffer(head_text_), asio::const_buffer(payload_.data(), payload_.size()),
      kind_ == BodyKind::chunked ? asio::buffer(std::string_view("0\r\n\r\n")) : asio::const_buffer()};
  if (asio::buffer_size(parts) > 0) CO_TRY_VOID(co_await send(parts));
  request_done_ = true;
  read_watch_.set(pool_->options.head_timeout);
  co_return Result<>();
}

bool ClientExchange::may_repeat() const {
  return connection_->reused && request_done_ && !cancelled_ && !read_expired_ && is_idempotent(method_) &&
         (kind_ == BodyKind::none || !payload_.empty());
}

Task<Response> ClientExchange::head() {
  if (head_done_) co_return our_mistake("the head was read already");
  if (kind_ == BodyKind::none && !request_done_) CO_TRY_VOID(co_await finish_request());
  CO_TRY(auto head, co_await try_head());
  if (!head && may_repeat()) {
    CO_TRY_VOID(co_await connect(true));
    head_sent_ = request_done_ = request_failed_ = false;
    CO_TRY_VOID(co_await finish_request());
    CO_TRY(head, co_await try_head());
  }
  if (!head) {
    if (is_idempotent(method_)) co_return io_error("connection_lost", "the other end closed the connection without an answer");
    co_return io_error("connection_lost", "the other end closed the connection without an answer; the request may have been carried out");
  }
  head_done_ = true;
  answer_ = std::move(*head);
  body_ = BodyReader(answer_);
  Response response;
  response.status = answer_.status;
  response.headers = answer_.headers;
  if (body_.done() && !(upgrade_ && answer_.status == 101)) release_when_done();
  co_return response;
}

class ClientExchange::Upgraded final : public ByteStream {
 public:
  explicit Upgraded(ClientExchange& exchange) : exchange_(exchange) {}

  Task<std::size_t> read(std::span<std::byte> into) override {
    InBuffer& in = exchange_.connection_->in;
    if (!in.empty()) {  // what came behind the answer's head
      const std::size_t n = std::min(into.size(), in.size());
      std::memcpy(into.data(), in.view().data(), n);
      in.consume(n);
      co_return n;
    }
    const std::array room{asio::mutable_buffer(into.data(), into.size())};
    const Transfer transfer = co_await exchange_.connection_->stream->read_some(room);
    if (transfer.error == asio::error::eof) co_return 0U;
    if (transfer.error) co_return exchange_.io_error("connection_lost", "the connection ended");
    co_return transfer.bytes;
  }
  Task<> write(std::span<const std::byte> bytes) override {
    const std::array parts{asio::const_buffer(bytes.data(), bytes.size())};
    co_return co_await exchange_.send(parts);
  }
  asio::awaitable<void> close_write() override { return exchange_.connection_->stream->close_write(); }
  void cut() override { exchange_.connection_->stream->close(); }

 private:
  ClientExchange& exchange_;
};

std::unique_ptr<ByteStream> ClientExchange::upgraded() { return std::make_unique<Upgraded>(*this); }

Task<std::optional<Head>> ClientExchange::try_head() {
  const auto garbage = [this](const Error& error) {
    connection_->stream->close();
    const char* code = error.code == "headers_too_large" || error.code == "target_too_long" ? "answer_head_too_large" : "bad_answer";
    return fail(ErrorKind::unavailable, code, fmt::format("the other end does not answer as HTTP demands: {}", error.message),
                "check what listens at this address");
  };
  InBuffer& in = connection_->in;
  bool any = false;
  for (int interim = 0; interim <= kMaxInterim; ++interim) {
    HeadScanner scanner(pool_->options.max_header_bytes);
    std::optional<std::size_t> length;
    for (;;) {
      auto scanned = scanner.scan(in.view());
      if (!scanned) co_return garbage(scanned.error());
      length = *scanned;
      if (length) break;
      const std::array room{in.prepare(kAnswerRoom)};
      Transfer transfer{asio::error::operation_aborted, 0};
      if (!cancelled_) {
        reading_ = true;
        transfer = co_await connection_->stream->read_some(room);
        reading_ = false;
      }
      if (transfer.error) {
        read_watch_.clear();
        if (!any && in.empty() && !cancelled_ && !read_expired_) co_return std::nullopt;
        co_return io_error("connection_lost", "the connection ended inside the head of the answer");
      }
      in.commit(transfer.bytes);
    }
    any = true;
    auto head = parse_response_head(in.view().substr(0, *length), kMaxFields, method_);
    in.consume(*length);
    if (!head) co_return garbage(head.error());
    if (head->status >= 200 || head->status == 101) {
      read_watch_.clear();
      co_return std::move(*head);
    }
  }
  const Error endless{ErrorKind::unavailable, "bad_answer", "too many interim answers", ""};
  co_return garbage(endless);
}

Task<std::size_t> ClientExchange::read(std::span<std::byte> into) {
  if (!head_done_) co_return our_mistake("read before the head");
  if (body_.done() || into.empty()) co_return 0U;
  if (cancelled_) co_return io_error("", "");
  read_watch_.set(body_timeout_);
  const BodyReader::Piece piece = co_await body_.read(*connection_->stream, connection_->in, into);
  read_watch_.clear();
  if (piece.fault == BodyReader::Piece::Fault::malformed) {
    connection_->stream->reset();
    co_return fail(ErrorKind::unavailable, "bad_answer", "the chunked body of the answer is malformed",
                   "check what listens at this address");
  }
  if (piece.fault != BodyReader::Piece::Fault::none) {
    connection_->stream->reset();
    co_return io_error("answer_cut_off", "the connection ended inside the body of the answer");
  }
  if (body_.done()) release_when_done();
  co_return piece.bytes;
}

void ClientExchange::release_when_done() {
  if (!answer_.keep_alive || answer_.status == 101 || !request_done_ || request_failed_ || cancelled_) {
    connection_->stream->close();
    return;
  }
  pool_->give_back(std::move(connection_));
}

void ClientExchange::cancel() {
  cancelled_ = true;
  if (connection_) connection_->stream->reset();
}

Task<std::string> ClientStream::read_all(std::size_t limit) {
  std::string body;
  std::size_t used = 0;
  const std::uint64_t announced = content_length().value_or(0);
  for (;;) {
    if (used == body.size())
      body.resize(std::min<std::size_t>(
          limit + 1,
          std::max<std::size_t>(used * 2, announced > 0 && announced < (64 << 10) ? static_cast<std::size_t>(announced) + 1 : 16 << 10)));
    const std::span<std::byte> room(reinterpret_cast<std::byte*>(body.data()) + used, body.size() - used);
    CO_TRY(const std::size_t got, co_await read(room));
    if (got == 0) break;
    used += got;
    if (used > limit)
      co_return fail(ErrorKind::too_large, "answer_too_large", fmt::format("the answer has more than {} bytes", limit),
                     "ask for less at once");
  }
  body.resize(used);
  co_return body;
}

}  // namespace space::http
