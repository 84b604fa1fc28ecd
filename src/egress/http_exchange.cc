#include "egress/http_exchange.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <fmt/format.h>
#include <openssl/evp.h>

#include "base/encoding.h"
#include "egress/http_session.h"
#include "egress/quick_io.h"
#include "egress/splice.h"

namespace space::egress {
namespace {

constexpr std::size_t kLongestAnswer = 128 << 10;
constexpr std::size_t kMostAnswer = 200;
constexpr std::size_t kHeadPiece = 4 << 10;
constexpr std::size_t kBodyPiece = 16 << 10, kMostPiece = 48 << 10;  // below what makes malloc tidy up at each release (64 kB)
constexpr int kMostContinues = 16;
constexpr std::chrono::seconds kStall{600};  // models think for minutes

tl::unexpected<Error> upstream_error(std::string_view code, std::string message) {
  return fail(ErrorKind::unavailable, code, std::move(message), "try again later");
}

// RFC 9110, section 9.2.2. Anything else may have been done already, though no answer came.
bool may_be_repeated(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "PUT" || method == "DELETE";
}

// A body's buffer: large for what is long, so that several TLS records go with one system call.
std::size_t piece_for(const http::Head& head) {
  if (head.framing != http::Framing::sized) return kBodyPiece;
  return static_cast<std::size_t>(std::clamp<std::uint64_t>(head.content_length.value_or(0), 1, kMostPiece));
}

// RFC 6455, section 4.2.2.
std::string websocket_accept(std::string_view key) {
  const std::string text = std::string(key) + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha1(), nullptr);
  return base64_encode({reinterpret_cast<const std::byte*>(digest), size});
}

}  // namespace

HttpExchange::HttpExchange(Flow& flow, http::Stream& guest, http::InBuffer& guest_in, Upstream& upstream, bool tls, http::Watchdog& stall,
                           http::Head& head, CheckedRequest& request)
    : flow_(flow),
      guest_(guest),
      guest_in_(guest_in),
      upstream_(upstream),
      tls_(tls),
      head_(head),
      request_(request),
      body_(head),
      stall_(stall) {}

void HttpExchange::failed(Error error) {
  if (answered_) {
    outcome_.cut_off = true;
    outcome_.note = std::move(error.message);
  } else if (!outcome_.refusal) {
    outcome_.refusal = upstream_refusal(error);
  }
}

asio::awaitable<HttpExchange::Outcome> HttpExchange::run(const Injection& injection, std::optional<Error> dead) {
  using namespace asio::experimental::awaitable_operators;
  scrubber_ = Scrubber(injection);
  if (dead) {
    failed(std::move(*dead));
    co_return std::move(outcome_);
  }
  stall_.set(kStall);
  const bool bodyless = head_.framing == http::Framing::none;
  for (int attempt = 0;; ++attempt) {
    if (upstream_.stale()) upstream_.drop();
    if (!upstream_.stream) {
      const std::vector<std::string> protocols{"http/1.1"};
      const auto connected = co_await connect_upstream(flow_, upstream_, tls_, protocols);
      if (!connected) {
        stall_.clear();
        failed(connected.error());
        co_return std::move(outcome_);
      }
    }
    const bool reused = std::exchange(upstream_.used, true);
    const auto sent = co_await send_head();
    if (!sent) {
      failed(sent.error());
    } else if (bodyless) {
      uploaded_ = true;
      co_await respond();
    } else {
      co_await (upload() && respond());
    }
    // A kept connection that the upstream closed while the request was on its way: once more, on a new one.
    if (outcome_.refusal && reused && bodyless && may_be_repeated(request_.method) && !heard_ && attempt == 0 && !flow_.is_cut()) {
      outcome_.refusal.reset();
      upstream_.drop();
      continue;
    }
    break;
  }
  stall_.clear();
  if (scrubber_.found() && outcome_.note.empty()) outcome_.note = "a secret was taken out of the answer";
  if (outcome_.cut_off || outcome_.refusal || !uploaded_) outcome_.keep = false;
  if (!outcome_.keep || drop_upstream_) upstream_.drop();
  upstream_.in.shrink();
  co_return std::move(outcome_);
}

Result<std::string> HttpExchange::request_head() const {
  std::string out = fmt::format("{} {} HTTP/1.1\r\n", request_.method, request_.target);
  TRY_VOID(http::append_field(out, "Host", request_.host));
  for (const auto& [name, value] : head_.headers.fields())
    if (!http::equal_no_case(name, "Host")) TRY_VOID(http::append_field(out, name, value));
  if (head_.framing == http::Framing::sized)
    out += fmt::format("Content-Length: {}\r\n", *head_.content_length);
  else if (head_.framing == http::Framing::chunked)
    out += "Transfer-Encoding: chunked\r\n";
  else if (head_.content_length)
    out += "Content-Length: 0\r\n";
  if (request_.websocket) out += "Connection: Upgrade\r\nUpgrade: websocket\r\n";
  out += "\r\n";
  return out;
}

Task<> HttpExchange::send_head() {
  CO_TRY(std::string text, request_head());
  const std::array part{asio::const_buffer(text.data(), text.size())};
  const http::Transfer sent = co_await upstream_.stream->write_all(part);
  const std::size_t size = text.size();
  wipe_string(text);  // a credential may stand in it
  if (sent.error) co_return upstream_error("upstream_closed", "it closed the connection: " + sent.error.message());
  (void)co_await flow_.passed_up(size);
  co_return Result<>();
}

asio::awaitable<void> HttpExchange::upload() {
  if (head_.expects_continue) {
    constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    const std::array part{asio::const_buffer(kContinue.data(), kContinue.size())};
    (void)co_await guest_.write_all(part);
  }
  const bool chunked = head_.framing == http::Framing::chunked;
  const std::size_t room = piece_for(head_);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(room);
  const std::span<std::byte> into(buffer.get(), room);
  while (!abandon_ && !flow_.is_cut()) {
    const auto piece = co_await body_.read(guest_, guest_in_, into);
    if (abandon_) co_return;
    if (piece.fault != http::BodyReader::Piece::Fault::none) {
      // The guest broke off or sent nonsense: the upstream must see a cut request, never a short one.
      guest_gone_ = true;
      upstream_.stream->reset();
      co_return;
    }
    if (piece.bytes > 0) {
      outcome_.bytes_up += piece.bytes;
      const bool on = co_await flow_.passed_up(piece.bytes);
      if (!on) co_return;
    }
    const bool last = body_.done();
    const std::string size = chunked && piece.bytes > 0 ? fmt::format("{:x}\r\n", piece.bytes) : std::string();
    const std::string_view end = !chunked ? "" : last && piece.bytes > 0 ? "\r\n0\r\n\r\n" : last ? "0\r\n\r\n" : "\r\n";
    const std::array parts{asio::const_buffer(size.data(), size.size()), asio::const_buffer(buffer.get(), piece.bytes),
                           asio::const_buffer(end.data(), end.size())};
    stall_.set(kStall);
    const http::Transfer sent = co_await upstream_.stream->write_all(parts);
    if (sent.error) co_return;  // it may have answered already and closed: respond() will see
    if (last) break;
  }
  uploaded_ = true;
}

asio::awaitable<void> HttpExchange::respond() {
  int interim = 0;
  for (;;) {
    auto answer_head = co_await read_answer_head();
    if (!answer_head) {
      if (!guest_gone_)
        failed(answer_head.error());
      else
        outcome_.cut_off = true;
      break;
    }
    if (answer_head->status == 101) {
      co_await websocket(*answer_head);
      break;
    }
    if (answer_head->status < 200) {
      if (++interim <= kMostContinues) continue;
      failed(Error{ErrorKind::unavailable, "upstream_malformed", "it sent more than 16 interim answers", ""});
      break;
    }
    outcome_.status = answer_head->status;
    auto done = co_await answer(std::move(*answer_head));
    if (!done) failed(done.error());
    break;
  }
  if (!uploaded_) {
    // It answered before the whole body came: nothing can follow on either connection.
    abandon_ = true;
    guest_.cancel();
    upstream_.stream->cancel();
  }
}

Task<http::Head> HttpExchange::read_answer_head() {
  http::HeadScanner scanner(kLongestAnswer);
  for (;;) {
    auto length = scanner.scan(upstream_.in.view());
    if (!length) co_return upstream_error("upstream_malformed", "its answer is malformed: " + length.error().message);
    if (*length) {
      auto head = http::parse_response_head(upstream_.in.view().substr(0, **length), kMostAnswer, request_.method);
      upstream_.in.consume(**length);
      if (!head) co_return upstream_error("upstream_malformed", "its answer is malformed: " + head.error().message);
      (void)co_await flow_.passed_down(**length);
      co_return head;
    }
    (void)co_await wait_for_data(*upstream_.stream);  // an answer is never there at once
    const std::array room{upstream_.in.prepare(kHeadPiece)};
    const http::Transfer got = co_await upstream_.stream->read_some(room);
    if (got.error) co_return upstream_error("upstream_closed", "it closed the connection without an answer");
    heard_ = true;
    stall_.set(kStall);
    upstream_.in.commit(got.bytes);
  }
}

Task<> HttpExchange::answer(http::Head answer) {
  if (scrubber_.active() && answer.framing != http::Framing::none) {
    const std::string_view coding = answer.headers.get("Content-Encoding");
    if (http::equal_no_case(coding, "gzip") || http::equal_no_case(coding, "x-gzip") || http::equal_no_case(coding, "deflate")) {
      CO_TRY(inflater_, Inflater::make(http::equal_no_case(coding, "deflate")));
      answer.headers.remove("Content-Encoding");
    } else if (!coding.empty() && !http::equal_no_case(coding, "identity")) {
      co_return upstream_error(
          "upstream_encoding",
          "it compressed the answer to a request with a credential in a way that is not read here, although it was asked not to");
    }
  }
  const http::Framing framing = answer.framing;
  const bool upstream_keeps = answer.keep_alive;
  strip_response(answer.headers);
  const bool old_guest = head_.minor == 0;
  const bool resized = inflater_ != nullptr;
  const bool chunked = !old_guest && framing != http::Framing::none && (framing != http::Framing::sized || resized);
  // What has no length ends with the connection for a guest of HTTP/1.0.
  outcome_.keep = head_.keep_alive && !old_guest;
  drop_upstream_ = !upstream_keeps;
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", answer.status, http::reason_phrase(answer.status));
  for (const auto& [name, value] : answer.headers.fields()) {
    const auto added = scrubber_.active() ? http::append_field(text, name, scrubber_.whole(value)) : http::append_field(text, name, value);
    if (!added) co_return upstream_error("upstream_malformed", "its answer holds a malformed field");
  }
  if (chunked)
    text += "Transfer-Encoding: chunked\r\n";
  else if (answer.content_length && !resized)
    text += fmt::format("Content-Length: {}\r\n", *answer.content_length);
  if (!outcome_.keep) text += "Connection: close\r\n";
  text += "\r\n";
  answered_ = true;
  co_return co_await copy_body(answer, std::move(text), chunked);
}

// `head` goes out with the first piece of the body when that is here already, else at once.
Task<> HttpExchange::copy_body(const http::Head& answer, std::string head, bool chunked) {
  const auto guest_left = [] { return fail(ErrorKind::cancelled, "guest_gone", "the guest closed the connection"); };
  http::BodyReader body(answer);
  if (body.done() || upstream_.in.empty()) {
    const bool sent = co_await to_guest(head, {}, false, false);
    if (!sent) co_return guest_left();
    head.clear();
  }
  if (body.done()) co_return Result<>();
  const std::size_t room = piece_for(answer);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(room);
  const std::span<std::byte> into(buffer.get(), room);
  while (!flow_.is_cut()) {
    const auto piece = co_await body.read(*upstream_.stream, upstream_.in, into);
    if (piece.fault != http::BodyReader::Piece::Fault::none) co_return upstream_error("upstream_closed", "its answer broke off");
    stall_.set(kStall);
    const bool last = body.done();
    std::string_view data(reinterpret_cast<const char*>(buffer.get()), piece.bytes);
    std::string changed;
    if (inflater_) {
      CO_TRY(changed, inflater_->push(data, last));
      data = changed;
    }
    if (scrubber_.active()) {
      std::string clean = scrubber_.push(data);
      if (last) clean += scrubber_.finish();
      changed = std::move(clean);
      data = changed;
    }
    outcome_.bytes_down += data.size();
    const bool on = co_await flow_.passed_down(piece.bytes);
    if (!on) co_return fail(ErrorKind::cancelled, "cut", flow_.why_cut());
    const bool sent = co_await to_guest(head, data, chunked, last);
    if (!sent) co_return guest_left();
    head.clear();
    if (last) co_return Result<>();
  }
  co_return fail(ErrorKind::cancelled, "cut", flow_.why_cut());
}

asio::awaitable<bool> HttpExchange::to_guest(std::string_view head, std::string_view data, bool chunked, bool last) {
  std::string size;
  if (chunked && !data.empty()) size = fmt::format("{:x}\r\n", data.size());
  const std::string_view end = !chunked ? "" : last ? (data.empty() ? "0\r\n\r\n" : "\r\n0\r\n\r\n") : data.empty() ? "" : "\r\n";
  const std::string front = std::string(head) + size;
  if (front.empty() && data.empty() && end.empty()) co_return true;
  const std::array parts{asio::const_buffer(front.data(), front.size()), asio::const_buffer(data.data(), data.size()),
                         asio::const_buffer(end.data(), end.size())};
  const http::Transfer sent = co_await guest_.write_all(parts);
  co_return !sent.error;
}

asio::awaitable<void> HttpExchange::websocket(const http::Head& answer_head) {
  if (!request_.websocket || !http::equal_no_case(answer_head.headers.get("Upgrade"), "websocket") ||
      answer_head.headers.get("Sec-WebSocket-Accept") != websocket_accept(head_.headers.get("Sec-WebSocket-Key"))) {
    failed(Error{ErrorKind::unavailable, "upstream_malformed", "it switched protocols without being asked", ""});
    co_return;
  }
  http::Headers headers = answer_head.headers;
  strip_response(headers);
  std::string text = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
  for (const auto& [name, value] : headers.fields())
    (void)http::append_field(text, name, scrubber_.active() ? scrubber_.whole(value) : value);
  text += "\r\n";
  answered_ = true;
  outcome_.status = 101;
  stall_.clear();
  const bool sent = co_await to_guest(text, {}, false, false);
  if (!sent) co_return;
  // What either side sent ahead goes first; from here on they speak frames that are not read.
  SpliceOptions options;
  options.first_up = guest_in_.view();
  options.first_down = upstream_.in.view();
  if (scrubber_.active()) {
    scrubber_.take_turns();
    options.scrubber = &scrubber_;
  }
  const std::uint64_t up = flow_.bytes_up, down = flow_.bytes_down;
  co_await splice(flow_, guest_, *upstream_.stream, std::move(options));
  outcome_.bytes_up += flow_.bytes_up - up;
  outcome_.bytes_down += flow_.bytes_down - down;
}

}  // namespace space::egress
