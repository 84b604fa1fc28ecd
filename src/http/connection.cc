#include "http/connection.h"

#include <algorithm>
#include <array>
#include <boost/asio/error.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/redirect_error.hpp>
#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/server_exchange.h"

namespace space::http {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLingerTime{2'000};  // for all that is read away behind an answer
constexpr std::size_t kReadRoom = 4 << 10;

std::string peer_name(const Peer& peer) {
  if (peer.credentials) return fmt::format("uid {} pid {}", peer.credentials->uid, peer.credentials->pid);
  return fmt::format("{}:{}", peer.address, peer.port);
}

// Without the query, which may hold what does not belong in a log.
std::string_view path_of(const Target& target) { return std::string_view(target.raw).substr(0, target.raw.find('?')); }

// A connection has at most one read under way: the buffer has one end.
class ReadTurn {
 public:
  explicit ReadTurn(bool& reading) : reading_(reading), mine_(!std::exchange(reading, true)) {}
  ~ReadTurn() {
    if (mine_) reading_ = false;
  }
  ReadTurn(const ReadTurn&) = delete;
  ReadTurn& operator=(const ReadTurn&) = delete;
  bool mine() const { return mine_; }

 private:
  bool& reading_;
  bool mine_;
};

}  // namespace

const std::string& ServerCore::date() {
  const std::time_t now = static_cast<std::time_t>(system_clock().wall_ms() / 1000);
  if (now == date_at_) return date_;
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  date_ = fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon], 1900 + utc.tm_year,
                      utc.tm_hour, utc.tm_min, utc.tm_sec);
  date_at_ = now;
  return date_;
}

Connection::Connection(const asio::any_io_executor& executor, std::shared_ptr<ServerCore> core, std::unique_ptr<Stream> stream, Peer peer)
    : core_(std::move(core)),
      stream_(std::move(stream)),
      peer_(std::move(peer)),
      read_watch_(executor,
                  [this] {
                    read_expired_ = true;
                    stream_->cancel();
                  }),
      write_watch_(executor, [this] {
        write_expired_ = true;
        reset();
      }) {}

Connection::~Connection() { set_waiting(false); }

void Connection::set_waiting(bool waiting) {
  if (waiting == place_.has_value()) return;
  if (waiting) {
    place_ = core_->waiting.insert(core_->waiting.end(), this);
  } else {
    core_->waiting.erase(*place_);
    place_.reset();
  }
}

void Connection::reset() {
  broken_ = true;
  stream_->reset();
}

void Connection::cut() {
  if (std::exchange(cut_, true)) return;
  set_waiting(false);
  reset();
  cancel_signal.emit(asio::cancellation_type::terminal);
}

void Connection::finish_up() {
  if (idle_) cut();
}

Task<> Connection::send(std::span<const asio::const_buffer> parts) {
  if (broken_) co_return fail(ErrorKind::cancelled, "client_gone", "the connection is cut");
  broken_ = true;  // also when this coroutine is abandoned in the middle
  write_watch_.set(core_->options.body_timeout);
  const Transfer transfer = co_await stream_->write_all(parts);
  write_watch_.clear();
  sent_at_ = asio::steady_timer::clock_type::now();
  if (transfer.error) {
    if (write_expired_)
      co_return fail(ErrorKind::cancelled, "client_too_slow", "the client took no bytes for too long",
                     "read the answer without long pauses");
    co_return fail(ErrorKind::cancelled, "client_gone", "the client closed the connection before the end of the answer");
  }
  broken_ = false;
  co_return Result<>();
}

asio::awaitable<Transfer> Connection::receive_ahead() {
  const ReadTurn turn(reading_);
  if (!turn.mine()) co_return Transfer{asio::error::already_started, 0};
  const std::array room{in_.prepare(kReadRoom)};
  const Transfer transfer = co_await stream_->read_some(room);
  in_.commit(transfer.bytes);
  co_return transfer;
}

asio::awaitable<void> Connection::broken_off() {
  boost::system::error_code ignored;
  co_await stream_->socket().async_wait(asio::socket_base::wait_error, asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<void> Connection::nothing_sent_for(milliseconds time) {
  const auto begin = asio::steady_timer::clock_type::now();
  for (;;) {
    // A write under way has a limit of its own.
    const auto since = broken_ ? asio::steady_timer::clock_type::now() : std::max(begin, sent_at_);
    const auto left = std::chrono::ceil<milliseconds>(since + time - asio::steady_timer::clock_type::now());
    if (left.count() <= 0) co_return;
    co_await sleep_for(left);
  }
}

asio::awaitable<void> Connection::no_longer_served() {
  using namespace asio::experimental::awaitable_operators;
  co_await (broken_off() || nothing_sent_for(core_->options.half_closed_timeout));
}

asio::awaitable<BodyReader::Piece> Connection::read_body(BodyReader& body, std::span<std::byte> into, milliseconds limit, bool& timed_out) {
  const ReadTurn turn(reading_);
  if (!turn.mine()) co_return BodyReader::Piece{0, BodyReader::Piece::Fault::failed, asio::error::already_started};
  read_expired_ = false;
  read_watch_.set(limit);
  const BodyReader::Piece piece = co_await body.read(*stream_, in_, into);
  read_watch_.clear();
  timed_out = read_expired_ && piece.fault == BodyReader::Piece::Fault::failed;
  co_return piece;
}

asio::awaitable<void> Connection::run() {
  try {
    set_waiting(true);
    read_watch_.set(core_->options.head_timeout);
    const auto ready = co_await stream_->handshake();
    read_watch_.clear();
    if (ready)
      co_await serve();
    else
      log::debug("http.handshake_failed", {{"peer", peer_name(peer_)}, {"error", ready.error()}});
  } catch (const std::exception& e) {
    // A cancelled coroutine unwinds by an exception of Asio's; anything else is a mistake of a handler's.
    if (!cut_) log::error("http.exception", {{"what", e.what()}});
    reset();
  }
}

asio::awaitable<void> Connection::serve() {
  for (;;) {
    set_waiting(!cut_);
    auto head = co_await read_head();
    set_waiting(false);
    if (!head) {
      co_await refuse(std::move(head).error());
      co_return;
    }
    if (!*head) co_return;
    const bool more = co_await serve_one(std::move(**head));
    if (!more) co_return;
    ++served_;
  }
}

Task<std::optional<Head>> Connection::read_head() {
  HeadScanner scanner(core_->options.max_header_bytes);
  std::optional<std::size_t> length;
  bool head_begun = false;
  read_expired_ = false;
  for (;;) {
    CO_TRY(length, scanner.scan(in_.view()));
    if (length) break;
    if (core_->stopping && in_.empty()) co_return std::nullopt;
    if (in_.empty()) {
      in_.shrink();
      idle_ = true;
      read_watch_.set(served_ > 0 ? core_->options.idle_timeout : core_->options.head_timeout);
    } else if (!std::exchange(head_begun, true)) {
      read_watch_.set(core_->options.head_timeout);  // for the whole head, however slowly it trickles
    }
    const Transfer transfer = co_await receive_ahead();
    idle_ = false;
    if (!transfer.error) continue;
    if (in_.empty() || cut_ || (transfer.error != asio::error::eof && !read_expired_)) co_return std::nullopt;
    if (read_expired_)
      co_return fail(ErrorKind::deadline_exceeded, "request_timeout", "the request's head did not come in time",
                     "send the request without long pauses");
    co_return fail(ErrorKind::invalid_argument, "bad_message", "the connection ended inside the request's head", "send the whole request");
  }
  read_watch_.clear();
  auto head = parse_request_head(in_.view().substr(0, *length), core_->options.max_header_fields);
  in_.consume(*length);
  if (!head) co_return fail(std::move(head).error());
  co_return std::move(*head);
}

asio::awaitable<bool> Connection::serve_one(Head head) {
  auto target = parse_target(head.target);
  if (!target && core_->options.any_target && check_raw_target(head.target)) {
    Target other;
    other.raw = head.target;
    other.refused = std::move(target).error();
    target = std::move(other);
  }
  if (!target) {
    co_await refuse(std::move(target).error());
    co_return false;
  }
  ServerExchange exchange(*this, std::move(head), std::move(*target));
  Result<> result = co_await core_->handler(exchange);
  using Phase = ServerExchange::Phase;
  if (exchange.phase() == Phase::detached) co_return false;
  if (exchange.phase() == Phase::upgraded) {
    stream_->close();
    co_return false;
  }
  if (result && exchange.phase() == Phase::fresh)
    result = fail(ErrorKind::internal, "no_answer", "the handler of this request gave no answer");
  if (result && exchange.phase() == Phase::started)
    result = fail(ErrorKind::internal, "unfinished_answer", "the handler did not finish its answer");
  if (!result) {
    const Error& error = result.error();
    if (http_status(error.kind) == 500)
      log::error("http.failed", {{"method", exchange.method()}, {"path", path_of(exchange.target())}, {"error", error}});
    if (exchange.phase() == Phase::fresh && !broken_) {
      const Response answer = problem(error);
      result = co_await exchange.reply(answer);
    }
  }
  if (exchange.phase() != Phase::finished || broken_) {
    reset();
    co_return false;
  }
  if (!exchange.keeps_alive()) {
    co_await close_gently();
    co_return false;
  }
  co_return exchange.body().done() || co_await drain(exchange.body());
}

asio::awaitable<bool> Connection::drain(BodyReader body) {
  // It has its answer: a body that trickles must not hold a place that somebody else needs.
  set_waiting(!cut_);
  const auto end = asio::steady_timer::clock_type::now() + kLingerTime;
  std::array<std::byte, 16 << 10> waste;
  while (!body.done()) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - asio::steady_timer::clock_type::now());
    if (left.count() <= 0) co_return false;
    bool timed_out = false;
    const auto piece = co_await read_body(body, waste, left, timed_out);
    if (piece.fault != BodyReader::Piece::Fault::none) co_return false;
  }
  co_return true;
}

asio::awaitable<void> Connection::refuse(Error error) {
  log::warn("http.refused", {{"peer", peer_name(peer_)}, {"error", error}});
  Head head;
  head.method = "GET";
  ServerExchange exchange(*this, std::move(head), Target());
  const Response answer = problem(error);
  const auto sent = co_await exchange.reply(answer);
  if (sent)
    co_await close_gently();
  else
    reset();
}

asio::awaitable<void> Connection::close_gently() {
  // Closing a socket with unread bytes sends RST, which can overtake the answer: so the rest is read away for a while.
  set_waiting(!cut_);
  read_watch_.set(kLingerTime);
  co_await stream_->close_write();
  const auto end = asio::steady_timer::clock_type::now() + kLingerTime;
  std::array<std::byte, 16 << 10> waste;
  const std::array room{asio::mutable_buffer(waste.data(), waste.size())};
  while (asio::steady_timer::clock_type::now() < end) {
    const Transfer transfer = co_await stream_->read_socket(room);
    if (transfer.error) break;
  }
  read_watch_.clear();
  stream_->close();
}

}  // namespace space::http
